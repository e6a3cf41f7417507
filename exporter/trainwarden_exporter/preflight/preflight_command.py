"""The command `preflight`: checks whether a run can start on this host."""

from __future__ import annotations

import argparse
import json

from trainwarden_exporter.config_file.types import parse_space, parse_typed_duration
from trainwarden_exporter.exceptions import UsageError
from trainwarden_exporter.gpu.driver import TIMEOUT_SECONDS
from trainwarden_exporter.preflight.checks import run_checks
from trainwarden_exporter.preflight.report import as_data, render, worst_result
from trainwarden_exporter.preflight.run_selection import load_optional
from trainwarden_exporter.runtime.command_parser import add_config_file, add_json
from trainwarden_exporter.runtime.similar_names import did_you_mean
from trainwarden_exporter.webserver.flags import argument_type


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_file(
        parser,
        "configuration file; without it, the check cannot distinguish leftovers from workers",
    )
    parser.add_argument(
        "--run", metavar="NAME", help="run that is to start, if other runs may be active"
    )
    parser.add_argument(
        "--gpu.memory-free",
        dest="gpu_memory_free",
        type=argument_type(parse_space),
        metavar="SIZE",
        help="memory that each GPU must have free",
    )
    parser.add_argument(
        "--gpu.timeout",
        dest="gpu_timeout",
        type=argument_type(parse_typed_duration),
        default=TIMEOUT_SECONDS,
        metavar="DURATION",
        help="timeout of the GPU driver (default: %(default)gs)",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Checks whether a run can start on this host; returns 0 if so, 1 if not. Raises UsageError."""
    config = load_optional(options.config_file)
    names = [run.name for run in config.runs]
    if options.run not in (None, *names):
        raise UsageError(f"no run has the name {options.run}{did_you_mean(options.run, names)}")
    memory_free, timeout = options.gpu_memory_free, options.gpu_timeout
    findings = run_checks(config, run=options.run, memory_free=memory_free, timeout=timeout)
    print(json.dumps(as_data(findings), indent=2) if options.json else render(findings))
    return int(worst_result(findings) == "refuse")
