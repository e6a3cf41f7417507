"""The command `check`: validates a configuration file, and says what each alert would do."""

from __future__ import annotations

import sys
from pathlib import Path

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.runtime.formatting import plural
from trainwarden_remediator.config.schema import load_setup
from trainwarden_remediator.config_check.check import cross_check
from trainwarden_remediator.config_check.host_warnings import config_warnings
from trainwarden_remediator.config_check.mistakes import find_mistakes
from trainwarden_remediator.config_check.plan import format_plan
from trainwarden_remediator.config_check.rule_files import find_rules, read_rules
from trainwarden_remediator.journal.terminal import terminal_width

USUAL_PORT = 10978


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
