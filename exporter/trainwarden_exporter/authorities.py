"""The certificate authorities of the system, read where somebody asks over TLS, and then once."""

from __future__ import annotations

import ssl
from functools import lru_cache
from pathlib import Path


def system_context() -> ssl.SSLContext:
    """Checks servers by the authorities of the system; shared, so it is not to be changed.

    One for each server would take 0.8 MiB and 18 ms each. They are read again after a change.
    """
    paths = ssl.get_default_verify_paths()
    return _read(tuple(map(_stamp, (paths.cafile, paths.capath))))


@lru_cache(maxsize=1)
def _read(_: tuple[object, ...]) -> ssl.SSLContext:
    return ssl.create_default_context()


def _stamp(path: str | None) -> tuple[str, int, int, int] | None:
    """What tells a file or a folder from what it was; None where there is none."""
    if path is None:
        return None
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    # Not the time alone: packages and `cp -p` give a new file that of long ago.
    return path, stat.st_ino, stat.st_size, stat.st_mtime_ns
