"""The parser of every command line; it imports little, as it stays in memory with a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from trainwarden_exporter.runtime.similar_names import similar


class CommandParser(argparse.ArgumentParser):
    """Names the option that an unknown one resembles.

    Reports what a subcommand does not know with the usage of that subcommand.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            meant = dict.fromkeys(filter(None, map(self._meant, unknown)))
            hint = f"; did you mean {' '.join(meant)}?" if meant else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return options, unknown

    def _meant(self, typed: str) -> str:
        """Returns the option that is meant, such as --memory-limit by --memory=64GiB, or ""."""
        name = typed.partition("=")[0].lstrip("-")
        if not typed.startswith("-") or not name:
            return ""
        known = {
            one.lstrip("-"): one
            for one, action in self._option_string_actions.items()
            if action.help != argparse.SUPPRESS
        }
        begun = [one for one in known if one.startswith(name)]
        meant = begun[0] if len(begun) == 1 else similar(name, known)
        return known.get(meant or "", "")


def add_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_config_file(parser: argparse.ArgumentParser, text: str, *, required: bool = False) -> None:
    parser.add_argument(
        "--config.file",
        dest="config_file",
        type=Path,
        required=required,
        metavar="FILE",
        help=text,
    )
