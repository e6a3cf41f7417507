"""Show the journal: alerts, decisions, actions, outcomes."""

from __future__ import annotations

import argparse
import math
import time
from functools import partial

from trainwarden_exporter.config_file.types import parse_typed_duration
from trainwarden_exporter.webserver.flags import argument_type
from trainwarden_remediator.commands.arguments import add_config_file, incident
from trainwarden_remediator.config.schema import load_setup
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal import event_text
from trainwarden_remediator.journal.database import journal_exists, open_database
from trainwarden_remediator.journal.rows import last_id, last_id_before, read_events
from trainwarden_remediator.journal.terminal import (
    LEAST_COLUMN,
    format_event,
    has_colours,
    terminal_width,
)
from trainwarden_remediator.notify.waiting import describe_waiting

NEWEST_EVENTS = 1000
"""The events that are shown without an option: a journal may have millions."""
FOLLOW_SECONDS = 0.5
"""Seconds between two reads of `--follow`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_file(parser)
    parser.add_argument(
        "-n",
        "--lines",
        type=_count,
        metavar="N",
        help=f"show the newest N events (default {NEWEST_EVENTS}, or all of `--since`)",
    )
    parser.add_argument(
        "--since",
        type=argument_type(parse_typed_duration),
        metavar="TIME",
        help="show the events since then, such as 12h",
    )
    parser.add_argument("--follow", action="store_true", help="keep printing new events")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument(
        "--incident", type=incident, metavar="ID", help="show only the events of this incident"
    )


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number that is not negative")
    return int(text)


def run(options: argparse.Namespace) -> int:
    path = load_setup(options.config_file).config.journal
    while not journal_exists(path):
        if not options.follow:
            raise JournalError(f"{path}: no journal; has the remediator run?")
        time.sleep(FOLLOW_SECONDS)
    width, colours = terminal_width(), has_colours()
    if not options.json and (not width or width >= event_text.LAST_COLUMN + LEAST_COLUMN):
        print(event_text.format_heading(), flush=True)
    # By default the newest ones; with a time, all of them since.
    limited = options.since is None and options.incident is None
    count = NEWEST_EVENTS if options.lines is None and limited else options.lines
    since = -math.inf if options.since is None else time.time() - options.since
    with open_database(path, mode="ro") as connection:
        last = last_id_before(connection, count, since)
        while True:
            # What is not shown is not read again, either.
            newest = last_id(connection)
            for event in read_events(connection, last, incident=options.incident):
                last = event.id
                shown = partial(format_event, width=width, colours=colours)
                print(event_text.as_json(event) if options.json else shown(event), flush=True)
            if not options.follow:
                waiting = () if options.json else describe_waiting(connection, time.time())
                print("".join(f"{line}\n" for line in waiting), end="")
                return 0
            last = max(last, newest)
            time.sleep(FOLLOW_SECONDS)
