"""The subcommands that one of the two programs has: they are passed on as they are given."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

FORWARDED = {
    "discover": ("trainwarden_exporter", "propose a configuration that fits this host"),
    "checkpoints": (
        "trainwarden_exporter",
        "list the checkpoints of a run, each read and proved",
    ),
    "preflight": ("trainwarden_exporter", "check whether a run can start on this host"),
    "stacks": ("trainwarden_exporter", "show what the processes of a run do, by their stacks"),
    "journal": ("trainwarden_remediator", "show alerts, decisions, actions and their outcomes"),
    "report": ("trainwarden_remediator", "report one incident, or the last 24 hours, as Markdown"),
    "hold": ("trainwarden_remediator", "stop all actions until `resume`"),
    "resume": ("trainwarden_remediator", "allow actions again"),
    "clean-gpu": (
        "trainwarden_remediator",
        "list the processes that hold a GPU, and end leftovers with --end",
    ),
    "approve": (
        "trainwarden_remediator",
        "let a remediator in mode observe take the action that it proposes, once",
    ),
    "notify-test": (
        "trainwarden_remediator",
        "send a test message to each destination of `notify`",
    ),
    "runbook": ("trainwarden_remediator", "print what to do about an alert"),
}
"""Subcommand to its package and its help text."""
READERS = ("journal", "report")
"""Subcommands that read what a stack has left, also after its end."""
USAGE = 2
"""Exit status of wrong usage."""
NOTHING_RUNS = "Trainwarden does not run here: `trainwarden up` starts it"


def run(arguments: Sequence[str]) -> int:
    """Runs the subcommand `arguments[0]` and returns its exit status."""
    package, _ = FORWARDED[arguments[0]]
    if package == "trainwarden_remediator" and arguments[0] != "runbook":
        arguments = [arguments[0], *_configuration(*arguments), *arguments[1:]]
    try:
        status: int = import_module(f"{package}.__main__").main(arguments, program="trainwarden")
    except SystemExit as end:
        if not end.code:  # it has printed its help
            print(f"\n{import_module('trainwarden.commands.forwarded_help').HELP[arguments[0]]}")
        elif end.code == USAGE:
            print(f"`trainwarden {arguments[0]} --help` has its options", file=sys.stderr)
        raise
    return status


def _configuration(command: str, *arguments: str) -> list[str]:
    """Returns the option that names the file of the running stack, unless another one is meant.

    Raises ValueError if no stack or several run.
    """
    # here: `trainwarden run` imports this module, and stays as long as the run does
    from pathlib import Path  # noqa: PLC0415

    from trainwarden.stack import load_script  # noqa: PLC0415

    named = any(one.startswith("--config.file") or one in ("-h", "--help") for one in arguments)
    if named or Path("remediator.yml").exists():
        return []
    link, claims = load_script("runfolder").REMEDIATOR_LINK, load_script("claims")
    running = [one for folder in claims.running_folders() if (one := folder / link).exists()]
    left = [one for folder in claims.known_folders() if (one := folder / link).exists()]
    found = running or left
    shown = "".join(f"\n  --config.file {one.read_text(encoding='utf-8')}" for one in found)
    if len(running) > 1:
        raise ValueError(f"several stacks run; choose one:{shown}")
    if not running:
        hint = f"\nEarlier stacks have left:{shown}" if left and command in READERS else ""
        raise ValueError(f"{NOTHING_RUNS}, or name a file: --config.file FILE{hint}")
    return [f"--config.file={one.read_text(encoding='utf-8')}" for one in running]
