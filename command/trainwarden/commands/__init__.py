"""The subcommands of `trainwarden`, one module each; `forwarded` has those of the two programs.

A module has a docstring whose first line is the help text, the text EXAMPLES, and the functions
`add_arguments(parser)` and `run(options) -> int`, which returns the exit status.
"""

from __future__ import annotations

from importlib import import_module

from trainwarden.commands import forwarded

COMMANDS = ("run", "attach", "stop", "up", "down", "check", "status", "autopsy", "completion")
"""Modules of this package, in the order of `trainwarden --help`."""


def command_help() -> list[tuple[str, str]]:
    """Returns each subcommand with its help text."""
    own = [(name, import_module(f"{__name__}.{name}").__doc__ or "") for name in COMMANDS]
    lines = [(name, text.splitlines()[0].rstrip(".")) for name, text in own]
    return [
        *((name, text[0].lower() + text[1:]) for name, text in lines),
        *((name, text) for name, (_, text) in forwarded.FORWARDED.items()),
    ]
