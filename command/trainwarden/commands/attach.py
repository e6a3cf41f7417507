"""Show what a run prints, until it ends.

Begins with the last ten lines that the run has printed since it was started here, then shows what
follows. Ctrl-C ends only this command: the run goes on. The run gets no input.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from trainwarden.run.announcement import read_content, running_pid
from trainwarden.run.folder import find_all_announcements, find_announcements, log_of
from trainwarden.run.log_follower import LogFollower, follow
from trainwarden_exporter.runtime.similar_names import did_you_mean

EXAMPLES = """\
examples:
  trainwarden attach train
  trainwarden attach grpo --worker vllm

exit status: that of the run's command once it has ended, the first that is not 0 of several; 0
after Ctrl-C; 1 if there is no such run"""

LINES = 10
"""How much of what was printed before is shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="name of the run")
    parser.add_argument("--worker", metavar="NAME", help="only this worker of the run")


def run(options: argparse.Namespace) -> int:
    found = find_announcements(options.run, options.worker)
    if not found:
        hint = did_you_mean(options.run, find_all_announcements().keys() - {options.run})
        raise ValueError(f"there is no run named {options.run}{hint}")
    # the logs of workers that ended before the others began are of no interest
    shown = [path for path in found if running_pid(path)] or found
    logs = ", ".join(str(log_of(path)) for path in shown)
    print(f"the last {LINES} lines, then what follows; all: {logs}", file=sys.stderr, flush=True)
    try:
        show(shown, lambda: not any(map(running_pid, shown)), lines=LINES)
    except KeyboardInterrupt:
        print(f"\ndetached; the run goes on: trainwarden stop {options.run}")
        return 0
    return exit_status(shown)


def show(announced: list[Path], is_over: Callable[[], bool], *, lines: int = sys.maxsize) -> None:
    """Shows what the announced workers print until `is_over` returns True.

    Of what they have printed before, at most the last `lines` lines are shown.
    """

    def write(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    followers = {}
    for path in announced:
        begin = read_content(path).get("log_offset", 0)
        followers[path.stem.partition("@")[2]] = LogFollower(log_of(path), begin, lines)
    follow(followers, is_over, write)


def exit_status(announced: list[Path]) -> int:
    """Returns the exit status of the ended commands as a shell has it: the first that is not 0."""
    codes = [
        os.waitstatus_to_exitcode(read_content(path).get("exit_status") or 0) for path in announced
    ]
    return next((code if code > 0 else 128 - code for code in codes if code), 0)
