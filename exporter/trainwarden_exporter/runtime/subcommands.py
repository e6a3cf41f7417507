"""The subcommands of a program: a module each, which is imported only for that subcommand."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from importlib import import_module
from typing import NamedTuple, Protocol, cast


class Command(Protocol):
    """The module of a subcommand."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int:
        """Returns the exit status. Raises what the `main` of the program reports."""


class Entry(NamedTuple):
    """A subcommand: its module and its help text."""

    module: str
    help: str

    def load(self) -> Command:
        return cast("Command", import_module(self.module))


def add_subcommands(
    parser: argparse.ArgumentParser, entries: Mapping[str, Entry], complete: Collection[str]
) -> None:
    """Adds the subcommands, with the arguments of the `complete` ones; stored as `command`."""
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, entry in entries.items():
        command = commands.add_parser(name, help=entry.help)
        if name in complete:
            entry.load().add_arguments(command)
