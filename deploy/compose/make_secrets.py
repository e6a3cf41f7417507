"""Makes the secrets of the stack where they are missing; what is there already stays.

It runs in a container, before all others, and has nothing but the standard library. Its arguments
are paths; only containers with the volume of a secret can read it.
"""

from __future__ import annotations

import secrets
import sys
from pathlib import Path


def make_secret(path: Path) -> None:
    """Write 32 random bytes in hexadecimal to `path`, whole or not at all."""
    if path.exists():
        return
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(secrets.token_hex(32) + "\n", encoding="ascii")
    unfinished.chmod(0o444)
    unfinished.rename(path)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        make_secret(Path(name))
