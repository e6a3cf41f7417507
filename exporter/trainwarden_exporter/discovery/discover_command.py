"""The command `discover`: proposes a configuration that fits this host."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import yaml

from trainwarden_exporter.discovery.host_scan import scan_host
from trainwarden_exporter.discovery.proposal import propose
from trainwarden_exporter.discovery.remediator_file import render_remediator
from trainwarden_exporter.discovery.yaml_writer import render
from trainwarden_exporter.exceptions import UsageError
from trainwarden_exporter.runtime.command_parser import add_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        type=Path,
        nargs="?",
        metavar="PATH",
        help="folder of the run; without it, derived from the running processes",
    )
    printed = parser.add_mutually_exclusive_group()
    printed.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="write exporter.yml and remediator.yml there instead of printing exporter.yml",
    )
    add_json(printed)


def run(options: argparse.Namespace) -> int:
    return discover(options.path, options.output, as_json=options.json)


def discover(path: Path | None, output: Path | None = None, *, as_json: bool = False) -> int:
    """Prints a configuration that fits this host; returns 0 if it found a run, else 1.

    With `output`, writes exporter.yml and remediator.yml into that folder instead; it never
    replaces a file. With `as_json`, prints the content of exporter.yml as JSON. Raises UsageError.
    """
    if path is not None and not path.is_dir():
        raise UsageError(f"{path} is not a folder")
    scan = scan_host(None if path is None else path.resolve())
    proposal = propose(scan)
    text = render(proposal, gpus=scan.gpus)
    if output is None:
        print(json.dumps(yaml.safe_load(text), indent=2) + "\n" if as_json else text, end="")
        return int(not proposal.runs)
    output.mkdir(parents=True, exist_ok=True)
    files = {"exporter.yml": text, "remediator.yml": render_remediator(proposal)}
    if existing := [name for name in files if (output / name).exists()]:
        raise UsageError(f"{output / existing[0]} exists")
    for name, content in files.items():
        (output / name).write_text(content)
        print(output / name)
    return int(not proposal.runs)
