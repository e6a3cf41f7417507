"""Explain after the fact, from the files in a folder, why a run ended.

Reads logs, checkpoints, recovery records and logs of the system in FOLDER, without a configuration
and without a running program, and prints a report as Markdown. Writes to no file, and loads no
pickle.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

from trainwarden.autopsy.announced import AnnouncedWorker, read_announced
from trainwarden.autopsy.case import Case
from trainwarden.autopsy.gather import gather
from trainwarden.autopsy.json_report import as_data
from trainwarden.autopsy.proving import with_proofs
from trainwarden.autopsy.report import render
from trainwarden.autopsy.verdict import Verdict
from trainwarden.run.announcement import running_pid
from trainwarden.run.folder import state_folder

EXAMPLES = """\
examples:
  trainwarden autopsy outputs/grpo > report.md
  trainwarden autopsy slurm-1809579.out
  trainwarden autopsy /srv/run --json | jq -r '.causes[0].title'

exit status: 0 if no likely cause of a failure was found, 3 if one was, 1 if FOLDER cannot be read,
2 for wrong usage"""

CAUSE_FOUND = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="folder of the run, with its logs and checkpoints; or one log",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def announced_in(folder: Path) -> tuple[AnnouncedWorker, ...]:
    """Returns what `trainwarden run` recorded of the last run in `folder`."""
    try:
        runs = state_folder() / "runs.d"
    except RuntimeError:
        return ()  # the account has no home, so it has no runs
    return read_announced(folder, runs, running_pid)


def run(options: argparse.Namespace) -> int:
    readers = logging.getLogger("trainwarden_exporter")
    level = readers.level
    readers.setLevel(logging.ERROR)  # the report names what is odd in the files
    try:
        verdict = Verdict(with_proofs(Case(gather(options.folder, announced_in=announced_in))))
    finally:
        readers.setLevel(level)
    if options.json:
        json.dump(as_data(verdict), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.write(render(verdict))
    return CAUSE_FOUND if verdict.likely else 0
