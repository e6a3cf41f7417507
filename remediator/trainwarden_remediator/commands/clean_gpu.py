"""List the processes that hold a GPU, and end leftovers."""

from __future__ import annotations

import argparse
import time

from trainwarden_exporter.gpu.holders import describe_holder
from trainwarden_exporter.runtime.formatting import plural
from trainwarden_remediator.actions.gpu_cleanup import GpuCleanupAction
from trainwarden_remediator.commands.arguments import add_config_file
from trainwarden_remediator.config.schema import load_setup
from trainwarden_remediator.config.targets import GpuCleanup


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.allow_abbrev = False
    parser.description = (
        "List the processes that hold a GPU, with why each is a leftover or not."
        " With --end, end the leftovers and wait until their GPU memory is free."
    )
    add_config_file(parser)
    parser.add_argument("--end", action="store_true", help="end the leftovers")
    parser.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Lists GPU holders, and ends leftovers on request, regardless of mode, holds and budgets."""
    setup = load_setup(options.config_file)
    cleanup = setup.config.gpu_cleanup or GpuCleanup()
    action = GpuCleanupAction(cleanup, setup.exporter_config)
    spared, chosen = action.select()
    for holder in spared:
        print(f"spared    {describe_holder(holder, time.time())}")
        print(f"          {action.why_spared(holder)}")
    for holder in chosen:
        print(f"leftover  {describe_holder(holder, time.time())}")
        print("          it belongs to no worker or child of one, and is not protected")
    if not chosen:
        print("no leftover holds a GPU")
        return 0
    if options.dry_run or not options.end:
        print(f"{plural(len(chosen), 'leftover')}; --end ends what is still one then")
        return 0
    shown = [holder.process.identity for holder in chosen]
    facts = action.perform("", lambda *_, **__: None, intended=shown)
    killed = f", {len(facts['killed'])} of them by SIGKILL" if facts["killed"] else ""
    print(f"terminated {plural(len(facts['ended']), 'leftover')}{killed}; the GPU memory is free")
    return 0
