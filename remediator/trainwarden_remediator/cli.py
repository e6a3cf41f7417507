"""The subcommands and options of the command `trainwarden-remediator`."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainwarden_exporter import __version__
from trainwarden_exporter.config_file.types import parse_typed_duration
from trainwarden_exporter.runtime.command_parser import CommandParser
from trainwarden_exporter.webserver.flags import add_serving_flags, argument_type
from trainwarden_remediator.config_check.check_command import USUAL_PORT

PROGRAM = "trainwarden-remediator"
LISTEN_ADDRESS = f"127.0.0.1:{USUAL_PORT}"
NEWEST_EVENTS = 1000
"""The events that `journal` shows without an option: a journal may have millions."""

_duration = argument_type(parse_typed_duration)


def build_parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    """Returns the parser of the command line; it stores the subcommand as `command`."""
    parser = CommandParser(
        prog=program,
        description="Receives alerts from Alertmanager, restarts workers, verifies the outcome,"
        " and keeps a journal.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"trainwarden {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")

    run = commands.add_parser("run", help="listen for alerts and act on them", allow_abbrev=False)
    _add_config_file(run)
    run.add_argument(
        "--mode", choices=("observe", "act"), help="override `mode` of the configuration file"
    )
    run.add_argument(
        "--token.renew",
        dest="token_renew",
        action="store_true",
        help="write a new token to `token_file` at each start, for an Alertmanager that reads it"
        " there: whatever had the port meanwhile may know the old one",
    )
    add_serving_flags(run, listen_address=LISTEN_ADDRESS)

    check = commands.add_parser("check", help="validate a configuration file")
    check.add_argument("file", type=Path, metavar="FILE")
    check.add_argument(
        "--rules",
        metavar="GLOB",
        help="Prometheus rule files (default: alerts/ beside FILE, else the shipped rules)",
    )
    check.add_argument(
        "--alertmanager",
        type=Path,
        metavar="FILE",
        help="Alertmanager's configuration file, to check its routes too",
    )
    check.add_argument(
        "--web.listen-address",
        dest="web_listen_address",
        default=LISTEN_ADDRESS,
        metavar="HOST:PORT",
        help="address on which `run` listens (default %(default)s)",
    )

    journal = commands.add_parser(
        "journal", help="show the journal: alerts, decisions, actions, outcomes"
    )
    _add_config_file(journal)
    journal.add_argument(
        "-n",
        "--lines",
        type=_count,
        metavar="N",
        help=f"show the newest N events (default {NEWEST_EVENTS}, or all of `--since`)",
    )
    journal.add_argument(
        "--since", type=_duration, metavar="TIME", help="show the events since then, such as 12h"
    )
    journal.add_argument("--follow", action="store_true", help="keep printing new events")
    journal.add_argument("--json", action="store_true", help="print one JSON object per line")

    journal.add_argument(
        "--incident", type=_incident, metavar="ID", help="show only the events of this incident"
    )

    report = commands.add_parser(
        "report", help="print a report of one incident, or of the last 24 hours, as Markdown"
    )
    _add_config_file(report)
    report.add_argument(
        "incident", nargs="?", type=_incident, metavar="ID", help="incident number in `journal`"
    )
    report.add_argument(
        "--since",
        type=_duration,
        default="24h",
        metavar="TIME",
        help="period to report without an ID, such as 12h or 7d (default %(default)s)",
    )

    report.add_argument(
        "--full", action="store_true", help="describe healed incidents of a night at length, too"
    )
    report.add_argument("--json", action="store_true", help="print JSON, for programs")

    clean = commands.add_parser(
        "clean-gpu",
        help="list the processes that hold a GPU, and end leftovers",
        description="List the processes that hold a GPU, with why each is a leftover or not."
        " With --end, end the leftovers and wait until their GPU memory is free.",
        allow_abbrev=False,
    )
    _add_config_file(clean)
    clean.add_argument("--end", action="store_true", help="end the leftovers")
    clean.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)

    trial = commands.add_parser("notify-test", help="send a test notification")
    _add_config_file(trial)
    trial.add_argument(
        "receiver", nargs="?", metavar="RECEIVER", help="name of a receiver (default: all)"
    )

    for name, summary in (
        ("hold", "stop all actions until `resume`, also across restarts"),
        ("resume", "allow actions again"),
    ):
        switch = commands.add_parser(name, help=summary, allow_abbrev=False)
        _add_config_file(switch)
        switch.add_argument("--run", default="", metavar="RUN", help="only this run")
        switch.add_argument(
            "--worker", default="", metavar="WORKER", help="only this worker of RUN"
        )
        if name == "hold":
            switch.add_argument("--list", action="store_true", help="only show the holds in force")
            switch.add_argument("--json", action="store_true", help="only show them, as JSON")
            switch.add_argument(
                "--for",
                dest="duration",
                type=_duration,
                metavar="TIME",
                help="end automatically, such as 2h",
            )
        switch.add_argument(
            "why", nargs="?", default="", metavar="WHY", help="reason for the journal"
        )
    approve = commands.add_parser(
        "approve", help="let a remediator in mode observe take the action that it proposes, once"
    )
    _add_config_file(approve)
    approve.add_argument(
        "incident",
        type=_incident_or_name,
        metavar="ID",
        help="incident number in `journal`, or RUN or RUN/WORKER on which one action is proposed",
    )
    runbook = commands.add_parser("runbook", help="print what to do about an alert")
    runbook.add_argument("alert", metavar="NAME", help="name of the alert")
    return parser


def _incident(text: str) -> int:
    """Parses an incident number, also in the form `#3`."""
    return int(text.removeprefix("#"))


def _incident_or_name(text: str) -> int | str:
    return _incident(text) if text.removeprefix("#").isdecimal() else text


def _count(text: str) -> int:
    if (count := int(text)) < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return count


def _add_config_file(parser: argparse.ArgumentParser) -> None:
    """The file names commands and folders: no file is taken from the working folder.

    The command `trainwarden` passes the file of the stack.
    """
    parser.add_argument(
        "--config.file",
        dest="config_file",
        type=Path,
        required=parser.prog.startswith(f"{PROGRAM} "),
        metavar="FILE",
        help="configuration file",
    )
