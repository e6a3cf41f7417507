"""The command line of `trainwarden`.

Only the module of the given subcommand is imported: `trainwarden run` stays as long as the run
does, and has to stay small.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from trainwarden.commands import COMMANDS, command_help, forwarded
from trainwarden_exporter.runtime.closed_output import is_unread, quiet_on_closed_output
from trainwarden_exporter.runtime.command_parser import CommandParser
from trainwarden_exporter.runtime.similar_names import similar

EPILOG = """\
exit status:
  0  success
  1  the command failed, or what it checks is not in order
  2  wrong usage

`trainwarden COMMAND --help` has the options, examples and further exit statuses of a command."""


WIDTH = 90


class Command(Protocol):
    """A module of `trainwarden.commands`."""

    EXAMPLES: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int: ...


@quiet_on_closed_output
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given and given[0] in forwarded.FORWARDED:
        try:
            return forwarded.run(given)
        except (OSError, ValueError) as error:
            if is_unread(error):
                raise
            print(f"trainwarden {given[0]}: {error}", file=sys.stderr)
            return 1
    if given and given[0] in COMMANDS:
        command = load(given[0])
        options = build_command_parser(given[0], command).parse_args(given[1:])
        options.given = given[1:]
        try:
            return command.run(options)
        except KeyboardInterrupt:
            return 0
        except (OSError, ValueError) as error:
            if is_unread(error):
                raise
            print(f"trainwarden {given[0]}: {error}", file=sys.stderr)
            return 1
    parser = build_parser()
    if given and not given[0].startswith("-"):
        parser.error(_unknown(given[0]))
    parser.parse_args(given)
    return 2  # not reached: without a known subcommand the parser exits


def _unknown(name: str) -> str:
    meant = similar(name, (*COMMANDS, *forwarded.FORWARDED))
    hint = f"; did you mean `{meant}`?" if meant else ""
    return f"no command has the name {name}{hint} (`trainwarden --help` lists all)"


def load(name: str) -> Command:
    """Imports the module of a subcommand."""
    return cast("Command", import_module(f"trainwarden.commands.{name}"))


def build_command_parser(name: str, command: Command) -> argparse.ArgumentParser:
    """Returns the parser of one subcommand."""
    parser = CommandParser(
        prog=f"trainwarden {name}",
        description=command.__doc__,
        epilog=command.EXAMPLES,
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    return parser


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the help page and of `--version`."""
    parser = CommandParser(
        prog="trainwarden",
        description="Watch training runs on this host, and heal them.",
        epilog=EPILOG,
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, text in command_help():
        commands.add_parser(name, help=text)
    return parser


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """With a fixed width: argparse would import shutil and, with it, a MiB of compressors."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=WIDTH)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from trainwarden_exporter import __version__  # noqa: PLC0415 (only here is it needed)

        print(f"trainwarden {__version__}")
        parser.exit()
