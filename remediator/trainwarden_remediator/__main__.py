"""The command `trainwarden-remediator`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence

from trainwarden_exporter import __version__
from trainwarden_exporter.exceptions import TrainwardenError
from trainwarden_exporter.runtime.closed_output import is_unread, quiet_on_closed_output
from trainwarden_exporter.runtime.command_parser import CommandParser
from trainwarden_exporter.runtime.subcommands import Entry, add_subcommands
from trainwarden_remediator.commands.arguments import PROGRAM

COMMANDS: Mapping[str, Entry] = {
    "run": Entry("trainwarden_remediator.commands.run", "listen for alerts and act on them"),
    "check": Entry("trainwarden_remediator.commands.check", "validate a configuration file"),
    "journal": Entry(
        "trainwarden_remediator.commands.journal",
        "show the journal: alerts, decisions, actions, outcomes",
    ),
    "report": Entry(
        "trainwarden_remediator.commands.report",
        "print a report of one incident, or of the last 24 hours, as Markdown",
    ),
    "clean-gpu": Entry(
        "trainwarden_remediator.commands.clean_gpu",
        "list the processes that hold a GPU, and end leftovers",
    ),
    "notify-test": Entry("trainwarden_remediator.commands.notify_test", "send a test notification"),
    "hold": Entry(
        "trainwarden_remediator.commands.hold",
        "stop all actions until `resume`, also across restarts",
    ),
    "resume": Entry("trainwarden_remediator.commands.resume", "allow actions again"),
    "approve": Entry(
        "trainwarden_remediator.commands.approve",
        "let a remediator in mode observe take the action that it proposes, once",
    ),
    "runbook": Entry("trainwarden_remediator.commands.runbook", "print what to do about an alert"),
}


@quiet_on_closed_output
def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Runs the command and returns its exit status: 0, 1 on failure, 2 on wrong usage.

    `program` is the name of the command in the help text.
    """
    given = sys.argv[1:] if arguments is None else arguments
    options = build_parser(program, given[:1]).parse_args(given)
    try:
        return COMMANDS[options.command].load().run(options)
    except KeyboardInterrupt:
        return 0
    except (TrainwardenError, OSError, ValueError) as error:
        if is_unread(error):
            raise
        typed = "" if program == PROGRAM else f"{program} {options.command}: "
        print(*(f"{typed}{line}" for line in str(error).splitlines()), sep="\n", file=sys.stderr)
        return 1


def build_parser(
    program: str = PROGRAM, complete: Collection[str] = tuple(COMMANDS)
) -> argparse.ArgumentParser:
    """Returns the parser of the command line, with the arguments of the `complete` subcommands."""
    parser = CommandParser(
        prog=program,
        description="Receives alerts from Alertmanager, restarts workers, verifies the outcome,"
        " and keeps a journal.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"trainwarden {__version__}")
    add_subcommands(parser, COMMANDS, complete)
    return parser


if __name__ == "__main__":
    sys.exit(main())
