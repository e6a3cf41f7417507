"""Allow actions again."""

from __future__ import annotations

import argparse
import time

from trainwarden_remediator.commands.arguments import add_scope, add_why
from trainwarden_remediator.config.schema import load_setup
from trainwarden_remediator.holds import service
from trainwarden_remediator.holds.hold_file import read_holds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scope(parser)
    add_why(parser)


def run(options: argparse.Namespace) -> int:
    setup, now = load_setup(options.config_file), time.time()
    scope = {"run": options.run, "worker": options.worker}
    why = service.normalize_reason(options.why)
    done = service.resume(setup, now, **scope, who=service.operator_name(), why=why)
    print(service.describe_resume(done))
    for left in read_holds(setup.config.hold_file, now):
        print(f"still held: {left.scope} {left.description}".strip())
    return 0
