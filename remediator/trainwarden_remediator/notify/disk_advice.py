"""What a notification says of a full or read-only disk: its folder, its room, a command. Pure.

It is taken from the evidence of the incident, which has the exporter's page, or from what the run
announces: no text of an alert is used in a command.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from trainwarden_exporter.runtime.formatting import format_size
from trainwarden_exporter.runtime.responsibility import MAKE_ROOM
from trainwarden_remediator.journal.evidence_text import DiskFacts

MAX_PATH_LENGTH = 200
"""Characters of a path that is shown: a part of a command must not be typed."""


def disk_advice(
    alert: str, run: str, disks: Iterable[DiskFacts], folder: Path | None = None
) -> str:
    """Returns which disk of a run an alert is about, and what an operator does; "" if not known.

    `folder` is where the run saves, in case the exporter did not show its disk.
    """
    own = [
        one
        for one in disks
        if run in one.runs and one.path.isprintable() and len(one.path) <= MAX_PATH_LENGTH
    ]
    if alert == "TrainingDiskReadOnly":
        return " ".join(_read_only(one) for one in own if one.read_only)
    worst = min(own, key=lambda one: one.free_share, default=None)
    if alert != "TrainingDiskFilling":
        return ""
    if worst is not None and worst.free is not None:
        size = "" if worst.size is None else f" of {format_size(worst.size)}"
        path, shown = worst.path, f"{worst.path} has {format_size(worst.free)}{size} free."
    elif (path := str(folder or "")).isprintable() and 0 < len(path) <= MAX_PATH_LENGTH:
        shown = f"The disk of {path} is full."
    else:
        return ""
    if "`" in path:
        return shown
    grew = f"`du -xh --max-depth 2 {shlex.quote(path)} | sort -h | tail -20`"
    return (
        f"{shown} {grew} shows what fills it. {MAKE_ROOM.capitalize()}; the alert ends a"
        " minute after there is room."
    )


def _read_only(disk: DiskFacts) -> str:
    return (
        f"{disk.path} is mounted read-only. `dmesg | tail -50` says why: after errors of the disk,"
        " save what is on it before you mount it for writing."
    )
