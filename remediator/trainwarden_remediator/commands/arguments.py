"""Arguments that several subcommands have."""

from __future__ import annotations

import argparse

from trainwarden_exporter.runtime import command_parser

PROGRAM = "trainwarden-remediator"
USUAL_PORT = 10978
LISTEN_ADDRESS = f"127.0.0.1:{USUAL_PORT}"


def add_config_file(parser: argparse.ArgumentParser) -> None:
    """The file names commands and folders: no file is taken from the working folder.

    The command `trainwarden` passes the file of the stack.
    """
    required = parser.prog.startswith(f"{PROGRAM} ")
    command_parser.add_config_file(parser, "configuration file", required=required)


def add_scope(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `hold` and `resume` before their own."""
    parser.allow_abbrev = False
    add_config_file(parser)
    parser.add_argument("--run", default="", metavar="RUN", help="only this run")
    parser.add_argument("--worker", default="", metavar="WORKER", help="only this worker of RUN")


def add_why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("why", nargs="?", default="", metavar="WHY", help="reason for the journal")


def incident(text: str) -> int:
    """Parses an incident number, also in the form `#3`."""
    if not (number := text.removeprefix("#")).isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number, as in `journal`")
    return int(number)
