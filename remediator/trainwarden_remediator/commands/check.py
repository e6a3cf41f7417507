"""The command `check`: validates a configuration file, and says what each alert would do."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.runtime.formatting import plural
from trainwarden_exporter.webserver.sockets import parse_listen_address
from trainwarden_remediator.commands.arguments import LISTEN_ADDRESS, USUAL_PORT
from trainwarden_remediator.config.schema import load_setup
from trainwarden_remediator.config_check.check import cross_check
from trainwarden_remediator.config_check.host_warnings import config_warnings
from trainwarden_remediator.config_check.mistakes import find_mistakes
from trainwarden_remediator.config_check.plan import format_plan
from trainwarden_remediator.config_check.rule_files import find_rules, read_rules
from trainwarden_remediator.journal.terminal import terminal_width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument(
        "--rules",
        metavar="GLOB",
        help="Prometheus rule files (default: alerts/ beside FILE, else the shipped rules)",
    )
    parser.add_argument(
        "--alertmanager",
        type=Path,
        metavar="FILE",
        help="Alertmanager's configuration file, to check its routes too",
    )
    parser.add_argument(
        "--web.listen-address",
        dest="web_listen_address",
        default=LISTEN_ADDRESS,
        metavar="HOST:PORT",
        help="address on which `run` listens (default %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    port = parse_listen_address(options.web_listen_address)[1]
    check(options.file, rules=options.rules, alertmanager=options.alertmanager, port=port)
    return 0


def check(
    file: Path,
    *,
    rules: str | None = None,
    alertmanager: Path | None = None,
    port: int = USUAL_PORT,
) -> None:
    """Prints that a file is in order, and its plan. Raises ConfigError with all mistakes.

    `rules` and `alertmanager` name the files beside it, `port` is that of the remediator.
    """
    try:
        setup = load_setup(file)
    except ConfigError as error:
        raise ConfigError(*(find_mistakes(file) or error.problems)) from error
    config = setup.config
    print(f"{file}: ok (mode {config.mode}, {plural(len(config.targets), 'target')})")
    for warning in config_warnings(setup):
        print(f"{file}: warning: {warning}", file=sys.stderr)
    read = read_rules(find_rules(rules, file))
    found = cross_check(file, setup, read, alertmanager, port=port)
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    if found.steps:
        folders = sorted({str(rule.path.parent) for rule in read})
        table = format_plan(found.steps, terminal_width())
        print(f"\nActions for the rules in {', '.join(folders)}:\n\n{table}")
        if config.mode == "observe":
            print("\nThe mode is observe: decisions are journaled, and no action is taken.")
    if found.problems:
        raise ConfigError(*found.problems)
