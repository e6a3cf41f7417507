"""Stop all actions until `resume`, also across restarts."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace

from trainwarden_exporter.config_file.types import parse_typed_duration
from trainwarden_exporter.runtime.formatting import format_time
from trainwarden_exporter.webserver.flags import argument_type
from trainwarden_remediator.commands.arguments import add_scope, add_why
from trainwarden_remediator.config.schema import load_setup
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.holds import service
from trainwarden_remediator.holds.hold_file import Hold, read_holds
from trainwarden_remediator.policy.hold_text import hold_json
from trainwarden_remediator.runtime.clock import WallClock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scope(parser)
    parser.add_argument("--list", action="store_true", help="only show the holds in force")
    parser.add_argument("--json", action="store_true", help="only show them, as JSON")
    parser.add_argument(
        "--for",
        dest="duration",
        type=argument_type(parse_typed_duration),
        metavar="TIME",
        help="end automatically, such as 2h",
    )
    add_why(parser)


def run(options: argparse.Namespace) -> int:
    setup, now = load_setup(options.config_file), time.time()
    if options.list or options.json:
        if options.why or options.run or options.worker or options.duration is not None:
            raise ValueError("--list and --json show all holds and set none: leave out the rest")
        holds = read_holds(setup.config.hold_file, now)
        if options.json:
            print(json.dumps([hold_json(hold, now=now) for hold in holds], indent=2))
            return 0
        for hold in holds:
            print(f"{hold.scope or 'everything'} {hold.description}".strip())
        return 0
    why = service.normalize_reason(options.why)
    if not options.run and why in {run.name for run in setup.exporter_config.runs}:
        raise ValueError(f"{why} is a run: `hold --run {why}` holds it, and another reason all")
    wanted = Hold(since=now)
    if options.duration is not None:
        wanted = Hold.lasting(options.duration, WallClock())
    who = service.operator_name()
    wanted = replace(wanted, run=options.run, worker=options.worker, who=who, why=why)
    try:
        service.hold(setup, wanted, now)
    except JournalError as error:  # the hold is in force nevertheless
        print(f"not recorded in the journal: {error}", file=sys.stderr)
    scope = f" --run {options.run}" * bool(options.run) + f" --worker {options.worker}" * bool(
        options.worker
    )
    until, resume = wanted.until, f"`trainwarden resume{scope}`"
    lasts = f"until {resume}" if until is None else f"until {format_time(until)}, or {resume}"
    what = "no actions" if wanted.everything else f"no actions on {wanted.scope}"
    print(f"held: {what} {lasts} ({setup.config.hold_file})")
    return 0
