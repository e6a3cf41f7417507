"""Send a test notification."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping

import aiohttp

from trainwarden_remediator.commands.arguments import add_config_file
from trainwarden_remediator.config.schema import Setup, load_setup
from trainwarden_remediator.notify.notifier import try_receivers
from trainwarden_remediator.report.current_state import describe_unread, running_remediator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_file(parser)
    parser.add_argument(
        "receiver", nargs="?", metavar="RECEIVER", help="name of a receiver (default: all)"
    )


def run(options: argparse.Namespace) -> int:
    setup = load_setup(options.config_file)
    notify = setup.config.notify
    chosen = [one for one in notify.receivers if options.receiver in (None, one.name)]
    if not chosen:
        which = "" if options.receiver is None else f" named {options.receiver}"
        raise ValueError(f"{options.config_file}: `notify` has no receiver{which}")
    failed = 0
    for name, problem in asyncio.run(try_receivers(notify, chosen)):
        print(f"{name}: {f'not sent: {problem}' if problem else 'sent; check that it arrived'}")
        failed += bool(problem)
    if unread := describe_unread(options.config_file, setup, asyncio.run(_running(setup))):
        print(f"warning: {unread}", file=sys.stderr)
    return min(failed, 1)


async def _running(setup: Setup) -> Mapping[str, object]:
    async with aiohttp.ClientSession() as session:
        return await running_remediator(setup, session)
