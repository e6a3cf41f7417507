"""Reads the record from which a run resumes."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainwarden_exporter.entries.disk import Disk, is_gone
from trainwarden_exporter.layouts.base import RecoveryLayout
from trainwarden_exporter.layouts.places import Instance
from trainwarden_exporter.layouts.proofs import SLACK

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Recovery:
    """A record as it lies on disk."""

    step: int | None
    """Steps done, counted from one; None where it does not tell."""
    whole: bool
    """Whether it was written to its end, and the recovery checkpoint before it."""

    def matches(self, newest: int | None) -> bool:
        """Whether a resume goes on at `newest`, the newest complete checkpoint, or beyond."""
        return self.whole and self.step is not None and (newest is None or self.step >= newest)


def read_recovery(
    layout: RecoveryLayout, path: Path, instance: Instance, disk: Disk
) -> Recovery | None:
    """The record of the run at `path`; None where there is none. Raises OSError."""
    file = next(iter(instance.files(layout.file)), None)
    text = None if file is None else _ask(disk.text, file)
    if text is None:
        return None
    match = re.search(layout.step, text)
    step = None if match is None else int(match["step"]) + layout.step_offset
    return Recovery(step, step is not None and _is_whole(layout, path, instance, disk))


def _is_whole(layout: RecoveryLayout, path: Path, instance: Instance, disk: Disk) -> bool:
    last = next(iter(instance.files(layout.written_last or layout.file)), None)
    written = None if last is None else _modified(disk, last)
    if written is None:
        return False
    if not layout.newer:
        return True
    newer = next(iter(instance.files(layout.newer)), instance.expected(path, layout.newer))
    latest = None if newer is None else _latest(disk, newer.parent)
    return latest is not None and written + SLACK >= latest


def _latest(disk: Disk, folder: Path) -> float | None:
    """When the last file in `folder` was written.

    All of them count, and not the one that is written last alone: while a recovery checkpoint is
    overwritten in place, the old one of that name still lies there.
    """
    try:
        names = disk.names(str(folder))
    except OSError as error:
        if is_gone(error):
            return None
        raise
    found = (_modified(disk, folder / named.name) for named in names if named.kind == "file")
    return max((moment for moment in found if moment is not None), default=None)


def _modified(disk: Disk, path: Path) -> float | None:
    status = _ask(disk.status, path)
    return status.st_mtime if status is not None and stat.S_ISREG(status.st_mode) else None


def _ask(question: Callable[[str], T], path: Path) -> T | None:
    """None where it is gone."""
    try:
        return question(str(path))
    except OSError as error:
        if is_gone(error):
            return None
        raise
