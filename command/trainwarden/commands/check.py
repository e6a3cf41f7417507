"""Validate configuration files and report every mistake with its line.

FILE is a configuration of the exporter or of the remediator, or the commands of a run in a file
trainwarden.yml; a folder stands for the files exporter.yml, remediator.yml and trainwarden.yml in
it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
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
  trainwarden check /srv/run/exporter.yml
  trainwarden check /srv/run --json | jq -r '.problems[].message'

exit status: 0 if all files are valid, 1 if not"""

_PROGRAMS = {
    "exporter.yml": "trainwarden_exporter",
    "remediator.yml": "trainwarden_remediator",
    "trainwarden.yml": "trainwarden",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="file or folder")
    parser.add_argument("--json", action="store_true", help="print the mistakes as JSON")


def run(options: argparse.Namespace) -> int:
    if options.json:
        found = {str(one): one for file in find_files(options.file) for one in problems_of(*file)}
        print(json.dumps(as_data(found.values()), indent=2))
        return int(bool(found))
    statuses: list[int] = []
    shown: set[str] = set()
    for file, package in find_files(options.file):
        # The remediator reads both files, and reports the mistakes of the other one again.
        with redirect_stderr(StringIO()) as printed:
            if package == _PROGRAMS["trainwarden.yml"]:
                statuses.append(check_commands(file))
            else:
                statuses.append(import_module(f"{package}.__main__").main(["check", str(file)]))
        for line in printed.getvalue().splitlines():
            if line not in shown:
                print(line, file=sys.stderr, flush=True)
                shown.add(line)
    return max(statuses)


def check_commands(file: Path) -> int:
    """Checks the file of several commands; returns 0 if it is valid, else 1."""
    from trainwarden.starting.run_file import load_run_file  # noqa: PLC0415
    from trainwarden_exporter.exceptions import ConfigError  # noqa: PLC0415
    from trainwarden_exporter.runtime.formatting import plural  # noqa: PLC0415

    try:
        name, commands = load_run_file(file.parent)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{file}: ok (run {name}, {plural(len(commands), 'command')})")
    return 0


def problems_of(file: Path, package: str) -> Iterable[Problem]:
    """Returns the mistakes in a file that `package` reads."""
    # here: `trainwarden check --help` needs none of it
    from trainwarden.starting.run_file import load_run_file  # noqa: PLC0415
    from trainwarden_exporter.config import Config, load_config  # noqa: PLC0415
    from trainwarden_exporter.config_file.examination import all_problems  # noqa: PLC0415
    from trainwarden_exporter.exceptions import ConfigError  # noqa: PLC0415
    from trainwarden_remediator.__main__ import COMMANDS  # noqa: PLC0415
    from trainwarden_remediator.cli import build_parser  # noqa: PLC0415

    is_of_exporter = package == _PROGRAMS["exporter.yml"]
    try:
        if is_of_exporter:
            load_config(file)
            return ()
        if package == _PROGRAMS["trainwarden.yml"]:
            load_run_file(file.parent)
            return ()
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # what is no mistake
            COMMANDS["check"](build_parser().parse_args(["check", str(file)]))
    except ConfigError as error:
        return all_problems(file, Config, error) if is_of_exporter else error.problems
    return ()


def as_data(problems: Iterable[Problem]) -> dict[str, object]:
    """Returns the mistakes for programs, with the keys of `Problem`; an unknown line is null."""
    shown = [
        {"path": str(one.path), "line": one.line, "where": one.where, "message": one.message}
        for one in problems
    ]
    return {"valid": not shown, "problems": shown}


def find_files(path: Path) -> list[tuple[Path, str]]:
    """Returns each file to check with the package that reads it.

    Raises ValueError if there is no file to check.
    """
    if not path.is_dir():
        kind = "remediator.yml" if "remediator" in path.name else "exporter.yml"
        return [(path, _PROGRAMS.get(path.name, _PROGRAMS[kind]))]
    found = [
        (path / name, package) for name, package in _PROGRAMS.items() if (path / name).exists()
    ]
    if not found:
        raise ValueError(f"{path}: has none of {', '.join(_PROGRAMS)}")
    return found
