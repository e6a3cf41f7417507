"""End the stacks that `trainwarden up` runs; your runs go on.

Logs, history and configuration stay where they are. The last line names the runs that go on.
"""

from __future__ import annotations

import argparse
from typing import cast

from trainwarden.run.announcement import find_running
from trainwarden.stack import load_script

EXAMPLES = """\
examples:
  trainwarden down                       all stacks of this account; a stack in a folder that
                                         `up --folder` has named, if no other runs
  trainwarden down --config /srv/run     that one

exit status: 0 if all that it ends have ended, 1 if one does not end, or if it ended none though
several run in named folders"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    load_script("detached").add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    status = cast("int", load_script("detached").run(options))
    if status == 0 and (running := find_running()):
        stops = ", ".join(f"`trainwarden stop {run}`" for run in running)
        print(f"your runs go on; to end each: {stops}")
    return status
