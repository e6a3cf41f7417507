"""The command line of the exporter."""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from trainwarden_exporter import __version__, logsetup
from trainwarden_exporter.app import Exporter
from trainwarden_exporter.config import Config, load_config
from trainwarden_exporter.exceptions import ConfigError, TrainwardenError
from trainwarden_exporter.service import serve
from trainwarden_exporter.web import build_app
from trainwarden_exporter.webserver import WebServer, parse_listen_address
from trainwarden_exporter.wording import plural

PROGRAM = "trainwarden-exporter"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status, 0 or 1. Raises SystemExit for misuse, with 2."""
    options = build_parser().parse_args(arguments)
    if options.command == "check":
        return check(options.file)
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
    run_parser.add_argument(
        "--web.listen-address",
        dest="web_listen_address",
        default="127.0.0.1:10977",
        type=_listen_address,
        metavar="HOST:PORT",
        help="where to listen (default: %(default)s)",
    )
    run_parser.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="FILE",
        help="TLS and users, in the format of the Prometheus exporter-toolkit",
    )
    run_parser.add_argument(
        "--log.level",
        dest="log_level",
        default="info",
        choices=logsetup.LEVELS,
        help="the least level that is logged (default: %(default)s)",
    )
    run_parser.add_argument(
        "--log.format",
        dest="log_format",
        default="logfmt",
        choices=logsetup.FORMATS,
        help="the form of a line of the log (default: %(default)s)",
    )

    check_parser = commands.add_parser("check", help="say whether a configuration file is good")
    check_parser.add_argument("file", type=Path, metavar="FILE")
    return parser


def _listen_address(text: str) -> str:
    try:
        parse_listen_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _complain(message: str) -> None:
    for line in message.splitlines():
        print(f"{PROGRAM}: {line}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
