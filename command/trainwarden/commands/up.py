"""Run the whole stack on this host: on a small demo run, or on yours.

Starts the exporter, Prometheus, Alertmanager and the remediator, all on 127.0.0.1, and ends them
with Ctrl-C. Prometheus and Alertmanager are those on PATH, else unpacked from the packages of the
distribution. It installs no package, and does not need root.
"""

from __future__ import annotations

import argparse
from typing import cast

from trainwarden.stack import load_script

EXAMPLES = """\
examples:
  trainwarden up                              the demo: one worker leaks and is healed. It acts,
                                              on runs of `trainwarden run`, too
  trainwarden up --config /srv/run            your run: it is observed, and nothing acts
  trainwarden up --config /srv/run --mode act --detach
  trainwarden down

The environment variables CONFIG and MODE stand for --config and --mode.

exit status: 0 after Ctrl-C, or with --detach once the stack is up; 1 if it does not start"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    load_script("up").add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return cast("int", load_script("up").run(options))
