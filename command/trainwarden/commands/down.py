"""End the stacks that `trainwarden up` runs; your runs go on.

Logs, history and configuration stay where they are.
"""

from __future__ import annotations

import argparse
from typing import cast

from trainwarden.stack import load_script

EXAMPLES = """\
examples:
  trainwarden down                       all stacks of this account
  trainwarden down --config /srv/run     that one

exit status: 0 if none runs any more, 1 if one does not end"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    load_script("detached").add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return cast("int", load_script("detached").run(options))
