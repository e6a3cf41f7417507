"""Command line of the exporter."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import yaml
from pydantic import ValidationError

from trainwarden_exporter import __version__
from trainwarden_exporter.api import build_app
from trainwarden_exporter.app import Exporter
from trainwarden_exporter.config import Config, RemediatorConfig, load_config
from trainwarden_exporter.config_file.examination import all_problems
from trainwarden_exporter.config_file.types import parse_space, parse_typed_duration
from trainwarden_exporter.discovery.host_scan import scan_host
from trainwarden_exporter.discovery.proposal import propose
from trainwarden_exporter.discovery.remediator_file import render_remediator
from trainwarden_exporter.discovery.yaml_writer import render as render_proposal
from trainwarden_exporter.exceptions import ConfigError, TrainwardenError, UsageError
from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.gpu.driver import TIMEOUT_SECONDS
from trainwarden_exporter.preflight.against_host import match_host
from trainwarden_exporter.preflight.checkpoints import list_checkpoints
from trainwarden_exporter.preflight.checks import run_checks
from trainwarden_exporter.preflight.config_warnings import config_warnings
from trainwarden_exporter.preflight.report import as_data, render, worst_result
from trainwarden_exporter.preflight.run_selection import load_optional, select_runs
from trainwarden_exporter.processes.config import workers_by_key
from trainwarden_exporter.processes.matching import Matcher
from trainwarden_exporter.processes.stacks.sampler import sample_run
from trainwarden_exporter.processes.stacks.text import as_data as stacks_as_data
from trainwarden_exporter.processes.stacks.text import render as render_stacks
from trainwarden_exporter.progress.limit_reasons import explain_phase_limits
from trainwarden_exporter.runtime import logging_setup
from trainwarden_exporter.runtime.closed_output import is_unread, quiet_on_closed_output
from trainwarden_exporter.runtime.command_parser import CommandParser
from trainwarden_exporter.runtime.formatting import plural
from trainwarden_exporter.webserver.flags import add_serving_flags, argument_type
from trainwarden_exporter.webserver.server import WebServer
from trainwarden_exporter.webserver.service import serve

PROGRAM = "trainwarden-exporter"


@quiet_on_closed_output
def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Runs the command line and returns the exit status: 0, 1 on failure, 2 on wrong usage.

    `program` is the name of the command in the help text.
    """
    options = build_parser(program).parse_args(arguments)
    try:
        match options.command:
            case "check":
                return check(
                    options.file, explain=options.explain, against_host=options.against_host
                )
            case "preflight":
                return preflight(options)
            case "checkpoints":
                return checkpoints(options)
            case "stacks":
                return stacks(options)
            case "discover":
                return discover(options.path, options.output, as_json=options.json)
        logging_setup.configure(options.log_level, options.log_format)
        asyncio.run(
            run(
                options.config_file,
                listen_address=options.web_listen_address,
                web_config_file=options.web_config_file,
                external_names=options.web_external_names,
                remediator=options.remediator_url,
            )
        )
    except (TrainwardenError, OSError, psutil.Error) as error:
        if is_unread(error):
            raise
        typed = f"{program}: " if program == PROGRAM else f"{program} {options.command}: "
        typed = "" if options.command == "check" else typed  # the lines begin with the file
        print(*(f"{typed}{line}" for line in str(error).splitlines()), sep="\n", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


async def run(
    config_file: Path | None,
    *,
    listen_address: str,
    web_config_file: Path | None,
    external_names: Sequence[str] = (),
    remediator: RemediatorConfig | None = None,
) -> None:
    """Serves until a termination signal.

    Raises ConfigError or OSError when it cannot start.
    """
    exporter = Exporter(config_file, remediator=remediator)
    server = WebServer(
        build_app(exporter),
        listen_address=listen_address,
        config_file=web_config_file,
        external_names=external_names,
    )
    exporter.reload_with(server)
    try:
        await serve(server, readiness=exporter.readiness, reload=exporter.reloader.reload)
    finally:
        exporter.close()


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


def preflight(options: argparse.Namespace) -> int:
    """Checks whether a run can start on this host; returns 0 if so, 1 if not. Raises UsageError."""
    config = load_optional(options.config_file)
    if options.run not in (None, *(run.name for run in config.runs)):
        raise UsageError(f"no run has the name {options.run}")
    memory_free, timeout = options.gpu_memory_free, options.gpu_timeout
    findings = run_checks(config, run=options.run, memory_free=memory_free, timeout=timeout)
    print(_as_json(as_data(findings)) if options.json else render(findings))
    return int(worst_result(findings) == "refuse")


def checkpoints(options: argparse.Namespace) -> int:
    """Lists the checkpoints of runs with their proofs.

    Returns 0 if a resume takes no damaged one, else 1. Raises UsageError.
    """
    config, runs = select_runs(options.config_file, options.run, past=options.run is not None)
    found = [one for run in runs for one in list_checkpoints(run, config.state_folder)]
    if options.json:
        print(_as_json([one.as_data() for one in found]))
    elif not found:
        print(f"{', '.join(run.name for run in runs)}: no folder of checkpoints is known")
    else:
        print("\n".join(line for one in found for line in one.lines()))
    return int(any(one.proofs.resume_problem for one in found))


def stacks(options: argparse.Namespace) -> int:
    """Samples the stacks of each run three times in ten seconds. Raises UsageError."""
    _, runs = select_runs(options.config_file, options.run)
    data = []
    for run in runs:
        selectors = {key: worker.match for key, worker in workers_by_key([run]).items()}
        diagnosis = sample_run(run, Matcher(selectors))
        data.append(stacks_as_data(run.name, diagnosis))
        if not options.json:
            print("\n".join((f"run {run.name}", *render_stacks(diagnosis))))
    if options.json:
        print(_as_json(data))
    return 0


def _as_json(data: object) -> str:
    return json.dumps(data, indent=2)


def discover(path: Path | None, output: Path | None = None, *, as_json: bool = False) -> int:
    """Prints a configuration that fits this host; returns 0 if it found a run, else 1.

    With `output`, writes exporter.yml and remediator.yml into that folder instead; it never
    replaces a file. With `as_json`, prints the content of exporter.yml as JSON. Raises UsageError.
    """
    if path is not None and not path.is_dir():
        raise UsageError(f"{path} is not a folder")
    scan = scan_host(None if path is None else path.resolve())
    proposal = propose(scan)
    text = render_proposal(proposal, gpus=scan.gpus)
    if output is None:
        print(_as_json(yaml.safe_load(text)) + "\n" if as_json else text, end="")
        return int(not proposal.runs)
    output.mkdir(parents=True, exist_ok=True)
    files = {"exporter.yml": text, "remediator.yml": render_remediator(proposal)}
    if existing := [name for name in files if (output / name).exists()]:
        raise UsageError(f"{output / existing[0]} exists")
    for name, content in files.items():
        (output / name).write_text(content)
        print(output / name)
    return int(not proposal.runs)


def build_parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = CommandParser(
        prog=program, description="Observe a training host and publish its state to Prometheus."
    )
    version = f"{PROGRAM} {__version__} (Python {platform.python_version()})"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run_parser = commands.add_parser(
        "run", help="observe the host and serve /metrics until terminated"
    )
    _add_config_file(run_parser, "configuration file; without it, only the host is observed")
    run_parser.add_argument(
        "--remediator.url",
        dest="remediator_url",
        type=argument_type(_remediator),
        metavar="URL",
        help="remediator of this host, in place of `remediator` in the configuration file",
    )
    add_serving_flags(run_parser, listen_address="127.0.0.1:10977")

    check_parser = commands.add_parser("check", help="validate a configuration file")
    check_parser.add_argument("file", type=Path, metavar="FILE")
    check_parser.add_argument(
        "--explain", action="store_true", help="print the limits in force and their reasons"
    )
    check_parser.add_argument(
        "--against-host",
        action="store_true",
        help="print for each entry what of it exists on this host now",
    )

    by_name = "name (default: all runs)"
    for name, text, named in (
        (
            "checkpoints",
            "list the checkpoints of a run, each read and proved",
            "name, or the folder of its checkpoints (default: all runs)",
        ),
        ("stacks", "show what the processes of a run do, by their stacks, in ten seconds", by_name),
    ):
        of_run = commands.add_parser(name, help=text)
        of_run.add_argument("run", nargs="?", metavar="RUN", help=named)
        _add_config_file(of_run, "configuration file; without it, only announced runs are known")
        _add_json(of_run)

    discover_parser = commands.add_parser(
        "discover", help="inspect this host and print a configuration that fits it"
    )
    discover_parser.add_argument(
        "path",
        type=Path,
        nargs="?",
        metavar="PATH",
        help="folder of the run; without it, derived from the running processes",
    )
    printed = discover_parser.add_mutually_exclusive_group()
    printed.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="write exporter.yml and remediator.yml there instead of printing exporter.yml",
    )
    _add_json(printed)

    preflight_parser = commands.add_parser(
        "preflight", help="check whether a run can start here; exit status 0 if so"
    )
    _add_config_file(
        preflight_parser,
        "configuration file; without it, the check cannot distinguish leftovers from workers",
    )
    preflight_parser.add_argument(
        "--run", metavar="NAME", help="run that is to start, if other runs may be active"
    )
    preflight_parser.add_argument(
        "--gpu.memory-free",
        dest="gpu_memory_free",
        type=argument_type(parse_space),
        metavar="SIZE",
        help="memory that each GPU must have free",
    )
    preflight_parser.add_argument(
        "--gpu.timeout",
        dest="gpu_timeout",
        type=argument_type(parse_typed_duration),
        default=TIMEOUT_SECONDS,
        metavar="DURATION",
        help="timeout of the GPU driver (default: %(default)gs)",
    )
    _add_json(preflight_parser)
    return parser


def _add_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_config_file(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--config.file", dest="config_file", type=Path, metavar="FILE", help=text)


def _remediator(url: str) -> RemediatorConfig:
    try:
        return RemediatorConfig(url=url)
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"]) from None


if __name__ == "__main__":
    sys.exit(main())
