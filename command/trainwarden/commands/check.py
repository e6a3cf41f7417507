"""Validate configuration files and report every mistake with its line.

FILE is a configuration of the exporter or of the remediator; a folder stands for the files
exporter.yml and remediator.yml in it.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stderr
from importlib import import_module
from io import StringIO
from pathlib import Path

EXAMPLES = """\
examples:
  trainwarden check /srv/run
  trainwarden check /srv/run/exporter.yml

exit status: 0 if all files are valid, 1 if not"""

_PROGRAMS = {"exporter.yml": "trainwarden_exporter", "remediator.yml": "trainwarden_remediator"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="file or folder")


def run(options: argparse.Namespace) -> int:
    statuses: list[int] = []
    shown: set[str] = set()
    for file, package in find_files(options.file):
        # The remediator reads both files, and reports the mistakes of the other one again.
        with redirect_stderr(StringIO()) as printed:
            statuses.append(import_module(f"{package}.__main__").main(["check", str(file)]))
        for line in printed.getvalue().splitlines():
            if line not in shown:
                print(line, file=sys.stderr, flush=True)
                shown.add(line)
    return max(statuses)


def find_files(path: Path) -> list[tuple[Path, str]]:
    """Returns each file to check with the package that reads it.

    Raises ValueError if there is no file to check.
    """
    if not path.is_dir():
        is_remediator = "remediator" in path.name
        return [(path, f"trainwarden_{'remediator' if is_remediator else 'exporter'}")]
    found = [
        (path / name, package) for name, package in _PROGRAMS.items() if (path / name).exists()
    ]
    if not found:
        raise ValueError(f"{path}: has neither exporter.yml nor remediator.yml")
    return found
