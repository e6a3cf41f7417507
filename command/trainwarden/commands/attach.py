"""Show what a run prints, until it ends.

Shows the last lines of the log, and what follows. Ctrl-C ends only this command: the run goes on.
The run gets no input.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from trainwarden.run.announcement import read_content, running_pid
from trainwarden.run.folder import find_announcements, log_of
from trainwarden.run.log_follower import follow

EXAMPLES = """\
examples:
  trainwarden attach train
  trainwarden attach grpo --worker vllm

exit status: that of the run's command once it has ended, the first that is not 0 of several; 0
after Ctrl-C; 1 if there is no such run"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="name of the run")
    parser.add_argument("--worker", metavar="NAME", help="only this worker of the run")


def run(options: argparse.Namespace) -> int:
    found = find_announcements(options.run, options.worker)
    if not found:
        raise ValueError(f"there is no run named {options.run}")
    # the logs of workers that ended before the others began are of no interest
    shown = [path for path in found if running_pid(path)] or found
    try:
        show(shown, lambda: not any(map(running_pid, shown)))
    except KeyboardInterrupt:
        print(f"\ndetached; the run goes on: trainwarden stop {options.run}")
        return 0
    return exit_status(shown)


def show(announced: list[Path], is_over: Callable[[], bool]) -> None:
    """Shows what the announced workers print until `is_over` returns True."""

    def write(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    follow({path.stem.partition("@")[2]: log_of(path) for path in announced}, is_over, write)


def exit_status(announced: list[Path]) -> int:
    """Returns the exit status of the ended commands as a shell has it: the first that is not 0."""
    codes = [
        os.waitstatus_to_exitcode(read_content(path).get("exit_status") or 0) for path in announced
    ]
    return next((code if code > 0 else 128 - code for code in codes if code), 0)
