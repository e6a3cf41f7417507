"""Print a report of one incident, or of the last 24 hours, as Markdown."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import replace

import aiohttp

from trainwarden_exporter.config_file.types import parse_typed_duration
from trainwarden_exporter.webserver.flags import argument_type
from trainwarden_remediator.commands.arguments import add_config_file, incident
from trainwarden_remediator.config.schema import Setup, load_setup
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.report.current_state import (
    CurrentState,
    mode_in_force,
    read_current_state,
    read_exporter_state,
)
from trainwarden_remediator.report.incident import ReportStyle, named_config
from trainwarden_remediator.report.json_report import incident_json, nights_json
from trainwarden_remediator.report.markdown import for_terminal
from trainwarden_remediator.report.nightly import (
    read_nights,
    read_present,
    report_incident,
    report_nights,
)
from trainwarden_remediator.runtime.clock import WallClock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_file(parser)
    parser.add_argument(
        "incident", nargs="?", type=incident, metavar="ID", help="incident number in `journal`"
    )
    parser.add_argument(
        "--since",
        type=argument_type(parse_typed_duration),
        default="24h",
        metavar="TIME",
        help="period to report without an ID, such as 12h or 7d (default %(default)s)",
    )
    parser.add_argument(
        "--full", action="store_true", help="describe healed incidents of a night at length, too"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(options: argparse.Namespace) -> int:
    setup = load_setup(options.config_file)
    config = setup.config
    now = time.time()
    style = ReportStyle(
        config_file=named_config(options.config_file),
        unattended_until=config.unattended_until,
        answered_after=config.answered_after,
        grafana_url=setup.exporter_config.grafana_url or "",
        full=options.full,
    )
    if options.incident is None:
        current, since = asyncio.run(_current_state(setup)), now - options.since
        if options.json:
            found = nights_json(read_nights(config.journal, since, now, current))
            print(json.dumps(found, indent=2))
            return 0
        report = report_nights(config.journal, since, style, now, current)
    else:
        exporter = asyncio.run(_exporter_state(setup))
        if options.json:
            found = incident_json(read_present(config.journal, options.incident, now, exporter))
            print(json.dumps(found, indent=2))
            return 0
        report = report_incident(config.journal, options.incident, style, now, exporter)
    print(for_terminal(report) if sys.stdout.isatty() else report, end="")
    return 0


async def _current_state(setup: Setup) -> CurrentState:
    async with aiohttp.ClientSession() as session:
        current = await read_current_state(setup, session, WallClock())
        mode = await mode_in_force(setup, session)
    return replace(current, situation=replace(current.situation, mode=mode))


async def _exporter_state(setup: Setup) -> ExporterState | None:
    async with aiohttp.ClientSession() as session:
        return await read_exporter_state(setup, session)
