"""Print what to do about an alert."""

from __future__ import annotations

import argparse

from trainwarden_exporter.runtime.similar_names import similar
from trainwarden_exporter.webserver.runbooks import read_runbook, runbook_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("alert", metavar="NAME", help="name of the alert")


def run(options: argparse.Namespace) -> int:
    if (text := read_runbook(options.alert)) is None:
        names, asked = sorted(runbook_names()), options.alert
        meant = similar(asked, names)
        found = [meant] if meant else [one for one in names if asked.lower() in one.lower()]
        hint = f"did you mean {' or '.join(found)}?" if found else f"known: {', '.join(names)}"
        raise ValueError(f"no runbook {asked}; {hint}")
    print(text, end="")
    return 0
