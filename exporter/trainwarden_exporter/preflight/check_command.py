"""The command `check`: validates a configuration file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trainwarden_exporter.config import Config, load_config
from trainwarden_exporter.config_file.examination import all_problems
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.preflight.against_host import match_host
from trainwarden_exporter.preflight.config_warnings import config_warnings
from trainwarden_exporter.progress.limit_reasons import explain_phase_limits
from trainwarden_exporter.runtime.formatting import plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument(
        "--explain", action="store_true", help="print the limits in force and their reasons"
    )
    parser.add_argument(
        "--against-host",
        action="store_true",
        help="print for each entry what of it exists on this host now",
    )


def run(options: argparse.Namespace) -> int:
    return check(options.file, explain=options.explain, against_host=options.against_host)


def check(file: Path, *, explain: bool = False, against_host: bool = False) -> int:
    """Validates the configuration in `file`; returns 0 if it is valid.

    With `explain`, prints the limits in force and their reasons. With `against_host`, prints what
    of each entry exists on this host now, and returns 1 if the path of a run does not exist or
    nothing of a run was found. Raises ConfigError with all mistakes.
    """
    try:
        config = load_config(file)
    except ConfigError as error:
        raise ConfigError(*all_problems(file, Config, error)) from error
    workers = sum(len(run.workers) for run in config.runs)
    print(f"{file}: ok ({plural(len(config.runs), 'run')}, {plural(workers, 'worker')})")
    for warning in config_warnings(config):
        print(f"{file}: warning: {warning}", file=sys.stderr)
    for run in config.runs if explain else ():
        for line in explain_phase_limits(run.progress, get_framework(run.framework)):
            print(f"run {run.name}: {line}")
    return int(against_host and not print_host_matches(config))


def print_host_matches(config: Config) -> bool:
    """Prints what of each run exists on this host; returns whether all runs were found."""
    all_found = True
    for run in config.runs:
        matches = tuple(match_host(run))
        for match in matches:
            print(match)
        is_missing = any(match.is_required and not match.found for match in matches)
        all_found = (
            all_found
            and not is_missing
            and any(match.found and not match.is_required for match in matches)
        )
    return all_found
