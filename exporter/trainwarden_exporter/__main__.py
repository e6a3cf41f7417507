"""Command line of the exporter."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Collection, Mapping, Sequence

import psutil

from trainwarden_exporter import __version__
from trainwarden_exporter.exceptions import TrainwardenError, UsageError
from trainwarden_exporter.runtime.closed_output import (
    describe_error,
    is_unread,
    quiet_on_closed_output,
)
from trainwarden_exporter.runtime.command_parser import CommandParser
from trainwarden_exporter.runtime.subcommands import Entry, add_subcommands

PROGRAM = "trainwarden-exporter"

COMMANDS: Mapping[str, Entry] = {
    "run": Entry(
        "trainwarden_exporter.api.run_command",
        "observe the host and serve /metrics until terminated",
    ),
    "check": Entry("trainwarden_exporter.preflight.check_command", "validate a configuration file"),
    "checkpoints": Entry(
        "trainwarden_exporter.preflight.checkpoints_command",
        "list the checkpoints of a run, each read and proved",
    ),
    "stacks": Entry(
        "trainwarden_exporter.preflight.stacks_command",
        "show what the processes of a run do, by their stacks, in ten seconds",
    ),
    "discover": Entry(
        "trainwarden_exporter.discovery.discover_command",
        "inspect this host and print a configuration that fits it",
    ),
    "preflight": Entry(
        "trainwarden_exporter.preflight.preflight_command",
        "check whether a run can start here; exit status 0 if so",
    ),
}


@quiet_on_closed_output
def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Runs the command line and returns the exit status: 0, 1 on failure, 2 on wrong usage.

    `program` is the name of the command in the help text.
    """
    given = sys.argv[1:] if arguments is None else arguments
    options = build_parser(program, given[:1]).parse_args(given)
    try:
        return COMMANDS[options.command].load().run(options)
    except (TrainwardenError, OSError, psutil.Error) as error:
        if is_unread(error):
            raise
        typed = f"{program}: " if program == PROGRAM else f"{program} {options.command}: "
        typed = "" if options.command == "check" else typed  # the lines begin with the file
        print(
            *(f"{typed}{line}" for line in describe_error(error).splitlines()),
            sep="\n",
            file=sys.stderr,
        )
        return 2 if isinstance(error, UsageError) else 1


def build_parser(
    program: str = PROGRAM, complete: Collection[str] = tuple(COMMANDS)
) -> argparse.ArgumentParser:
    """Returns the parser of the command line, with the arguments of the `complete` subcommands."""
    parser = CommandParser(
        prog=program, description="Observe a training host and publish its state to Prometheus."
    )
    version = f"{PROGRAM} {__version__} (Python {platform.python_version()})"
    parser.add_argument("--version", action="version", version=version)
    add_subcommands(parser, COMMANDS, complete)
    return parser


if __name__ == "__main__":
    sys.exit(main())
