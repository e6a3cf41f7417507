"""Explain after the fact, from the files of a run, why it ended.

Reads logs, checkpoints, recovery records and logs of the system in FOLDER, or of a run that
`trainwarden run` started, without a configuration and without a running program, and prints a
report as Markdown. Writes to no file, and loads no pickle.
"""

from __future__ import annotations

import argparse
import glob
import json
import logging
import sys
from contextlib import suppress
from pathlib import Path

from trainwarden.autopsy.announced import AnnouncedWorker, read_announced
from trainwarden.autopsy.case import Case
from trainwarden.autopsy.gather import gather
from trainwarden.autopsy.json_report import as_data
from trainwarden.autopsy.proving import with_proofs
from trainwarden.autopsy.report import render
from trainwarden.autopsy.verdict import Verdict
from trainwarden.commands.forwarded import remediator_files
from trainwarden.run.announcement import running_pid
from trainwarden.run.folder import NoHomeError, state_folder
from trainwarden.stack import load_script
from trainwarden_exporter.runtime.similar_names import did_you_mean

EXAMPLES = """\
examples:
  trainwarden autopsy outputs/grpo > report.md
  trainwarden autopsy slurm-1809579.out
  trainwarden autopsy grpo                     a run of `trainwarden run`, by its name
  trainwarden autopsy /srv/run --json | jq -r '.causes[0].title'

exit status: 0 if no likely cause of a failure was found, 3 if one was, 1 if FOLDER cannot be read
or holds nothing of a run, 2 for wrong usage"""

CAUSE_FOUND = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="folder of the run, with its logs and checkpoints; or one log; or the name of a run",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def announced_in(folder: Path | None) -> tuple[AnnouncedWorker, ...]:
    """Returns what `trainwarden run` recorded of the runs in `folder`; None: of all."""
    try:
        runs = state_folder() / "runs.d"
    except NoHomeError:
        return ()
    return read_announced(folder, runs, running_pid)


def find_run(name: str) -> tuple[Path, tuple[AnnouncedWorker, ...]]:
    """Returns the checkpoints, else the log, of the run `name`, and what is recorded of it.

    Of a run that ended long ago, only the logs are left. Raises ValueError if there is no such run.
    """
    known = announced_in(None)
    if workers := tuple(one for one in known if one.run == name):
        places = (*(one.checkpoints for one in workers), *(one.log for one in workers))
        return next((one for one in places if one and one.exists()), workers[0].log), workers
    with suppress(RuntimeError):
        logs = (state_folder() / "logs").glob(f"{glob.escape(name)}@*.log")
        if newest := max(logs, key=lambda one: one.stat().st_mtime, default=None):
            return newest, ()
    names = sorted({one.run for one in known})
    which, runs = f"{name}; runs: {', '.join(names) or 'none'}", did_you_mean(name, names)
    raise ValueError(f"neither a folder, nor a log, nor a run has the name {which}{runs}")


def stack_journals() -> list[Path]:
    """Returns the journals of the stacks of this account, running or ended."""
    found: list[Path] = []
    with suppress(RuntimeError):  # the account has no home
        claims = load_script("claims")
        folders = dict.fromkeys((*claims.known_folders(), *claims.running_folders()))
        for file in remediator_files(folders):
            # here: most of the time, no stack has run
            from trainwarden_exporter.config_file.loader import load  # noqa: PLC0415
            from trainwarden_exporter.exceptions import ConfigError  # noqa: PLC0415
            from trainwarden_remediator.config.schema import Config  # noqa: PLC0415

            with suppress(ConfigError):
                found.append(load(Path(file), Config).journal)
    return found


def run(options: argparse.Namespace) -> int:
    folder, workers, name = options.folder, None, ""
    if not folder.exists():
        name = str(folder)
        folder, workers = find_run(name)
    readers = logging.getLogger("trainwarden_exporter")
    level = readers.level
    readers.setLevel(logging.ERROR)  # the report names what is odd in the files
    try:
        material = gather(
            folder,
            announced_in=lambda one: announced_in(one) if workers is None else workers,
            run_name=name,
            stack_journals=stack_journals(),
        )
        verdict = Verdict(with_proofs(Case(material)))
    finally:
        readers.setLevel(level)
    if options.json:
        json.dump(as_data(verdict), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.write(render(verdict))
    if not verdict.has_material:
        return 1
    return CAUSE_FOUND if verdict.likely else 0
