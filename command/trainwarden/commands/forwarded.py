"""The subcommands that one of the two programs has: they are passed on as they are given."""

from __future__ import annotations

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
    "report": ("trainwarden_remediator", "report one incident, or the last night, as Markdown"),
    "hold": ("trainwarden_remediator", "stop all actions until `resume`"),
    "resume": ("trainwarden_remediator", "allow actions again"),
    "notify-test": (
        "trainwarden_remediator",
        "send a test message to each destination of `notify`",
    ),
    "runbook": ("trainwarden_remediator", "print what to do about an alert"),
}
"""Subcommand to its package and its help text."""


def run(arguments: Sequence[str]) -> int:
    """Runs the subcommand `arguments[0]` and returns its exit status."""
    package, _ = FORWARDED[arguments[0]]
    status: int = import_module(f"{package}.__main__").main(arguments, program="trainwarden")
    return status
