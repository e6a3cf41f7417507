"""The subcommands of `trainwarden`, one module each; `doors` has those of the two programs.

A module has a docstring whose first line is the help text, the text EXAMPLES, and the functions
`add_arguments(parser)` and `run(options) -> int`, which returns the exit status.
"""

from __future__ import annotations

COMMANDS = ("run", "attach", "stop", "up", "down", "check", "status", "autopsy")
"""Modules of this package, in the order of `trainwarden --help`."""
