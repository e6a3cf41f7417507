"""Readies the volume that Prometheus reads: its file, and the rules with the user's changes.

It runs in a container, before Prometheus. Its arguments are the file of changes (docs/rules.md),
which need not be there, and the folder to fill.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from overriding import Overrides, overridden, read_overrides
from ruleset import RULES, read_shipped
from trainwarden_exporter.exceptions import ConfigError
from write_rules import write_files


def prepare(changes: Path, folder: Path) -> None:
    """Fill `folder`. Raises ConfigError and OSError, and then leaves there what was."""
    overrides = read_overrides(changes) if changes.exists() else Overrides()
    write_files(overridden(read_shipped(), overrides), folder)
    shutil.copyfile(RULES / "prometheus.yml", folder / "prometheus.yml")


if __name__ == "__main__":
    try:
        prepare(*map(Path, sys.argv[1:]))
    except (ConfigError, OSError) as error:
        sys.exit(str(error))
