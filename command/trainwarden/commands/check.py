"""Validate configuration files and report every mistake with its line.

FILE is a configuration of the exporter or of the remediator, or the commands of a run in a file
trainwarden.yml; a folder stands for the files exporter.yml, remediator.yml and trainwarden.yml in
it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainwarden_exporter.exceptions import Problem

EXAMPLES = """\
examples:
  trainwarden check /srv/run
  trainwarden check /srv/run/exporter.yml /srv/other
  trainwarden check /srv/run --json | jq -r '.problems[].message'

exit status: 0 if all files are valid, 1 if not"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="file or folder")
    parser.add_argument("--json", action="store_true", help="print the mistakes as JSON")


def run(options: argparse.Namespace) -> int:
    found: dict[str, Problem] = {}
    out, err = (StringIO(), StringIO()) if options.json else (sys.stdout, sys.stderr)
    with redirect_stdout(out), redirect_stderr(err):
        for one in (problem for path in options.files for problem in check(path)):
            # The remediator reads both files, and reports the mistakes of the other one again.
            if str(one) not in found:
                print(one, file=sys.stderr, flush=True)
                found[str(one)] = one
    if options.json:
        print(json.dumps(as_data(found.values()), indent=2))
    return int(bool(found))


_CHECKS = {
    "exporter.yml": "trainwarden_exporter.preflight.check_command",
    "remediator.yml": "trainwarden_remediator.commands.check",
    "trainwarden.yml": "trainwarden.starting.run_file",
}
"""The module for each file: its `check(file)` prints that the file is in order, or raises
ConfigError with all mistakes."""


def check(path: Path) -> Iterator[Problem]:
    """Prints what is in order in a file, or in the files of a folder, and yields the mistakes."""
    # here: `trainwarden check --help` does not need it
    from trainwarden_exporter.exceptions import ConfigError, Problem  # noqa: PLC0415

    if path.is_dir():
        files = {path / name: one for name, one in _CHECKS.items() if (path / name).exists()}
    else:
        kind = "remediator.yml" if "remediator" in path.name else "exporter.yml"
        files = {path: _CHECKS.get(path.name, _CHECKS[kind])}
    if not files:
        yield Problem(path, None, "", f"has none of {', '.join(_CHECKS)}")
    for file, module in files.items():
        try:
            import_module(module).check(file)
        except ConfigError as error:
            yield from error.problems


def as_data(problems: Iterable[Problem]) -> dict[str, object]:
    """Returns the mistakes for programs, with the keys of `Problem`; an unknown line is null."""
    shown = [
        {"path": str(one.path), "line": one.line, "where": one.where, "message": one.message}
        for one in problems
    ]
    return {"valid": not shown, "problems": shown}
