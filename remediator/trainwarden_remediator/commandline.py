"""The words of the command `trainwarden-remediator`, and their options."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainwarden_exporter import __version__
from trainwarden_exporter.serving.flags import add_serving_flags
from trainwarden_exporter.units import parse_duration

LISTEN_ADDRESS = "127.0.0.1:10978"


def build_parser() -> argparse.ArgumentParser:
    """What can be said on the command line; `command` of what it returns is the word that was."""
    parser = argparse.ArgumentParser(
        prog="trainwarden-remediator",
        description="Takes alerts from Alertmanager, decides, acts, verifies, and writes it down.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"trainwarden {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")

    run = commands.add_parser("run", help="listen for alerts and act on them", allow_abbrev=False)
    _add_config_file(run)
    run.add_argument(
        "--mode", choices=("observe", "act"), help="takes the place of `mode` in the file"
    )
    add_serving_flags(run, listen_address=LISTEN_ADDRESS)

    check = commands.add_parser("check", help="say what is wrong with a configuration file")
    check.add_argument("file", type=Path, metavar="FILE")
    check.add_argument(
        "--rules",
        metavar="GLOB",
        help="Prometheus' rule files (default: alerts/ beside FILE, else those shipped)",
    )
    check.add_argument(
        "--alertmanager", type=Path, metavar="FILE", help="its file, whose routes are checked, too"
    )
    check.add_argument(
        "--web.listen-address",
        dest="web_listen_address",
        default=LISTEN_ADDRESS,
        metavar="HOST:PORT",
        help="where `run` listens (default %(default)s)",
    )

    tell = commands.add_parser("journal", help="tell what was heard, decided and done, and why")
    _add_config_file(tell)
    tell.add_argument("--follow", action="store_true", help="go on as it happens")
    tell.add_argument("--json", action="store_true", help="one JSON object a line")

    report = commands.add_parser(
        "report", help="tell of one incident, or of the last night, as Markdown for a person"
    )
    _add_config_file(report)
    report.add_argument(
        "incident", nargs="?", type=_incident, metavar="ID", help="as `journal` numbers it"
    )
    report.add_argument(
        "--since",
        type=_duration,
        default="24h",
        metavar="TIME",
        help="how far back, such as 12h or 7d, without an ID (default %(default)s)",
    )

    clean = commands.add_parser(
        "clean-gpu", help="end what holds a GPU and belongs to no worker, now and by your own hand"
    )
    _add_config_file(clean)
    clean.add_argument("--dry-run", action="store_true", help="only say what would be ended")

    trial = commands.add_parser("notify-test", help="send a message, to try whether it arrives")
    _add_config_file(trial)
    trial.add_argument("receiver", nargs="?", metavar="RECEIVER", help="(default: every one)")

    for name, summary in (
        ("hold", "stop all actions until `resume`; survives restarts"),
        ("resume", "allow actions again"),
    ):
        switch = commands.add_parser(name, help=summary, allow_abbrev=False)
        _add_config_file(switch)
        switch.add_argument("--run", default="", metavar="RUN", help="only this run")
        switch.add_argument("--worker", default="", metavar="WORKER", help="only this of the run")
        if name == "hold":
            switch.add_argument(
                "--for", dest="duration", type=_duration, metavar="TIME", help="such as 2h"
            )
        switch.add_argument(
            "why", nargs="?", default="", metavar="WHY", help="the reason, for the journal"
        )
    return parser


def _incident(text: str) -> int:
    """The number of an incident, also as `#3`."""
    return int(text.removeprefix("#"))


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _add_config_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config.file",
        dest="config_file",
        type=Path,
        default=Path("remediator.yml"),
        metavar="FILE",
        help="(default %(default)s)",
    )
