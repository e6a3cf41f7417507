"""Print what to do about an alert."""

from __future__ import annotations

import argparse

from trainwarden_exporter.runtime.similar_names import similar
from trainwarden_exporter.webserver.runbooks import read_runbook, runbook_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("alert", metavar="NAME", help="name of the alert")


def run(options: argparse.Namespace) -> int:
    if (text := read_runbook(options.alert)) is None:
        meant = similar(options.alert, runbook_names())
        hint = f"; did you mean {meant}?" if meant else ""
        raise ValueError(f"no runbook {options.alert}{hint}")
    print(text, end="")
    return 0
