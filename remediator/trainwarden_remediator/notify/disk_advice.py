"""What a notification says of a full or read-only disk: its folder, its room, a command. Pure.

It is taken from the evidence of the incident, which has the exporter's page: no text of an alert
is used in a command.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from trainwarden_exporter.runtime.formatting import format_size
from trainwarden_remediator.journal.evidence_text import DiskFacts

MAX_PATH_LENGTH = 200
"""Characters of a path that is shown: a part of a command must not be typed."""


def disk_advice(alert: str, run: str, disks: Iterable[DiskFacts]) -> str:
    """Returns which disk of a run an alert is about, and what an operator does; "" if not known."""
    own = [
        one
        for one in disks
        if run in one.runs and one.path.isprintable() and len(one.path) <= MAX_PATH_LENGTH
    ]
    if alert == "TrainingDiskReadOnly":
        return " ".join(_read_only(one) for one in own if one.read_only)
    worst = min(own, key=lambda one: one.free_share, default=None)
    if alert != "TrainingDiskFilling" or worst is None or worst.free is None:
        return ""
    size = "" if worst.size is None else f" of {format_size(worst.size)}"
    shown = f"{worst.path} has {format_size(worst.free)}{size} free."
    if "`" in worst.path:
        return shown
    grew = f"`du -xh --max-depth 2 {shlex.quote(worst.path)} | sort -h | tail -20`"
    return (
        f"{shown} {grew} shows what fills it. Delete or move away the oldest checkpoints, never the"
        " newest complete one; the alert ends a minute after there is room."
    )


def _read_only(disk: DiskFacts) -> str:
    return (
        f"{disk.path} is mounted read-only. `dmesg | tail -50` says why: after errors of the disk,"
        " save what is on it before you mount it for writing."
    )
