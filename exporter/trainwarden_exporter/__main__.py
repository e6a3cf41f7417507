"""The command line of the exporter."""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from trainwarden_exporter import __version__, logsetup, memory
from trainwarden_exporter.app import Exporter
from trainwarden_exporter.config import Config, load_config
from trainwarden_exporter.exceptions import ConfigError, TrainwardenError
from trainwarden_exporter.gpu.driver import PATIENCE
from trainwarden_exporter.serving.flags import add_serving_flags
from trainwarden_exporter.serving.service import serve
from trainwarden_exporter.serving.webserver import WebServer
from trainwarden_exporter.units import parse_duration, parse_size
from trainwarden_exporter.web import build_app
from trainwarden_exporter.wording import plural

PROGRAM = "trainwarden-exporter"
T = TypeVar("T")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status, 0 or 1. Raises SystemExit for misuse, with 2."""
    options = build_parser().parse_args(arguments)
    if options.command == "check":
        return check(options.file)
    if options.command == "preflight":
        return preflight(options)
    if options.command == "discover":
        return discover(options.path)
    logsetup.configure(options.log_level, options.log_format)
    try:
        asyncio.run(
            run(
                options.config_file,
                listen_address=options.web_listen_address,
                web_config_file=options.web_config_file,
            )
        )
    except (TrainwardenError, OSError) as error:
        _complain(str(error))
        return 1
    return 0


async def run(
    config_file: Path | None, *, listen_address: str, web_config_file: Path | None
) -> None:
    """Serve until told to stop.

    Raises ConfigError or OSError when that cannot begin.
    """
    memory.settle()
    exporter = Exporter(config_file)
    server = WebServer(
        build_app(exporter), listen_address=listen_address, config_file=web_config_file
    )
    exporter.reload_with(server)
    await serve(server, readiness=exporter.readiness, reload=exporter.reloader.reload)


def check(file: Path) -> int:
    """Say whether the configuration in `file` is good; 0 when it is, 1 when not."""
    try:
        config = load_config(file)
    except ConfigError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        return 1
    workers = sum(len(run.workers) for run in config.runs)
    print(f"{file}: ok ({plural(len(config.runs), 'run')}, {plural(workers, 'worker')})")
    for doubt in doubts(config):
        print(f"{file}: warning: {doubt}", file=sys.stderr)
    return 0


def preflight(options: argparse.Namespace) -> int:
    """Say whether a run may start here; 0 when it may, 1 when not, 2 when that cannot be asked."""
    # here, as for `discover`
    from trainwarden_exporter.findings import render, verdict  # noqa: PLC0415
    from trainwarden_exporter.preflight import examine  # noqa: PLC0415

    try:
        config = Config() if options.config_file is None else load_config(options.config_file)
    except ConfigError as error:
        _complain(str(error))
        return 2
    if options.run not in (None, *(run.name for run in config.runs)):
        _complain(f"no run is named {options.run}")
        return 2
    try:
        findings = examine(
            config,
            run=options.run,
            memory_free=options.gpu_memory_free,
            patience=options.gpu_timeout,
        )
    except TrainwardenError as error:
        _complain(str(error))
        return 1
    print(render(findings))
    return int(verdict(findings) == "refuse")


def discover(path: Path | None) -> int:
    """Print a configuration that fits this box; 0 when anything was found to be watched."""
    # here, because what serves for months has no use for them
    from trainwarden_exporter.discovery.box import read_box  # noqa: PLC0415
    from trainwarden_exporter.discovery.propose import propose  # noqa: PLC0415
    from trainwarden_exporter.discovery.render import render as render_proposal  # noqa: PLC0415

    if path is not None and not path.is_dir():
        _complain(f"{path} is not a folder")
        return 2
    try:
        box = read_box(None if path is None else path.resolve())
    except TrainwardenError as error:
        _complain(str(error))
        return 1
    runs = propose(box)
    print(render_proposal(runs, gpus=box.gpus), end="")
    return int(not runs)


def doubts(config: Config) -> list[str]:
    """What is allowed in `config` and yet hardly meant."""
    if not config.runs:
        return ["no runs: only the host is watched"]
    return [
        f"run {run.name} has no workers: nothing of it is watched"
        for run in config.runs
        if not run.workers
    ]


def build_parser() -> argparse.ArgumentParser:
    """What the command line understands."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Observes a training box and publishes what it sees to Prometheus.",
    )
    version = f"{PROGRAM} {__version__} (Python {platform.python_version()})"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run_parser = commands.add_parser("run", help="observe and serve /metrics until told to stop")
    run_parser.add_argument(
        "--config.file",
        dest="config_file",
        type=Path,
        metavar="FILE",
        help="what to observe; without it, the host alone",
    )
    add_serving_flags(run_parser, listen_address="127.0.0.1:10977")

    check_parser = commands.add_parser("check", help="say whether a configuration file is good")
    check_parser.add_argument("file", type=Path, metavar="FILE")

    discover_parser = commands.add_parser(
        "discover", help="look at this box and print a configuration that fits it"
    )
    discover_parser.add_argument(
        "path",
        type=Path,
        nargs="?",
        metavar="PATH",
        help="the folder of the run; found by what runs here when not given",
    )

    preflight_parser = commands.add_parser(
        "preflight", help="say whether a run may start here; the exit status is 0 when it may"
    )
    preflight_parser.add_argument(
        "--config.file",
        dest="config_file",
        type=Path,
        metavar="FILE",
        help="what runs here; without it, leftovers cannot be told from what should be there",
    )
    preflight_parser.add_argument(
        "--run", metavar="NAME", help="the run that is to start, where others may be running"
    )
    preflight_parser.add_argument(
        "--gpu.memory-free",
        dest="gpu_memory_free",
        type=_quantity(parse_size),
        metavar="SIZE",
        help="memory that each GPU must have free",
    )
    preflight_parser.add_argument(
        "--gpu.timeout",
        dest="gpu_timeout",
        type=_quantity(parse_duration),
        default=PATIENCE,
        metavar="DURATION",
        help="how long the GPU driver has to answer (default: %(default)gs)",
    )
    return parser


def _quantity(parse: Callable[[str], T]) -> Callable[[str], T]:
    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


def _complain(message: str) -> None:
    for line in message.splitlines():
        print(f"{PROGRAM}: {line}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
