"""Let a remediator in mode observe take the action that it proposes, once."""

from __future__ import annotations

import argparse
import time

from trainwarden_exporter.runtime.formatting import format_duration
from trainwarden_remediator.commands.arguments import add_config_file, incident
from trainwarden_remediator.config.schema import load_setup
from trainwarden_remediator.holds import service
from trainwarden_remediator.journal.approvals import APPROVAL_SECONDS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_file(parser)
    parser.add_argument(
        "incident",
        type=_incident_or_name,
        metavar="ID",
        help="incident number in `journal`, or RUN or RUN/WORKER on which one action is proposed",
    )


def _incident_or_name(text: str) -> int | str:
    return incident(text) if text.removeprefix("#").isdecimal() else text


def run(options: argparse.Namespace) -> int:
    setup = load_setup(options.config_file)
    what = service.approve(setup, options.incident, time.time(), who=service.operator_name())
    lasts = format_duration(APPROVAL_SECONDS)
    print(f"approved once, for {lasts}: {what}; `trainwarden journal --follow` shows what is done")
    return 0
