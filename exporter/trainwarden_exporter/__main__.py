"""Command line of the exporter."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple, Protocol, cast

import psutil

from trainwarden_exporter import __version__
from trainwarden_exporter.exceptions import TrainwardenError, UsageError
from trainwarden_exporter.runtime.closed_output import is_unread, quiet_on_closed_output
from trainwarden_exporter.runtime.command_parser import CommandParser

PROGRAM = "trainwarden-exporter"


class Command(Protocol):
    """The module of a subcommand."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int:
        """Returns the exit status. Raises TrainwardenError, OSError or psutil.Error."""


class Entry(NamedTuple):
    """A subcommand: its module, which is imported only for it, and its help text."""

    module: str
    help: str

    def load(self) -> Command:
        return cast("Command", import_module(f"trainwarden_exporter.{self.module}"))


COMMANDS: Mapping[str, Entry] = {
    "run": Entry("api.run_command", "observe the host and serve /metrics until terminated"),
    "check": Entry("preflight.check_command", "validate a configuration file"),
    "checkpoints": Entry(
        "preflight.checkpoints_command", "list the checkpoints of a run, each read and proved"
    ),
    "stacks": Entry(
        "preflight.stacks_command",
        "show what the processes of a run do, by their stacks, in ten seconds",
    ),
    "discover": Entry(
        "discovery.discover_command", "inspect this host and print a configuration that fits it"
    ),
    "preflight": Entry(
        "preflight.preflight_command", "check whether a run can start here; exit status 0 if so"
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
        print(*(f"{typed}{line}" for line in str(error).splitlines()), sep="\n", file=sys.stderr)
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
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, entry in COMMANDS.items():
        command = commands.add_parser(name, help=entry.help)
        if name in complete:
            entry.load().add_arguments(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
