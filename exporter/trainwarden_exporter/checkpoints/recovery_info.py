"""Reads the record that a run resumes from."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainwarden_exporter.frameworks.base import RecoveryLayout
from trainwarden_exporter.frameworks.completeness_rules import CLOCK_TOLERANCE_SECONDS
from trainwarden_exporter.frameworks.path_resolution import RunInstance
from trainwarden_exporter.step_dirs.filesystem import FileSystem, is_gone

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecoveryRecord:
    """A recovery record on disk."""

    step: int | None
    """Completed steps, counted from one; None if the record does not contain them."""
    is_complete: bool
    """Whether the record, and its recovery checkpoint, were written completely."""
    missing: str = ""
    """Name of the file that the record lacks; empty if none is missing."""
    written_at: float = 0.0
    """Last write of the record's last file, in Unix seconds; 0 if it is not complete."""

    @property
    def resume_points(self) -> list[tuple[int, float]]:
        """Step and time (Unix seconds) of a complete record."""
        known = self.is_complete and self.step is not None
        return [(self.step or 0, self.written_at)] if known else []

    def matches(self, newest: int | None) -> bool:
        """Whether a resume continues at or after `newest`, the newest complete checkpoint."""
        return (
            self.is_complete and self.step is not None and (newest is None or self.step >= newest)
        )


def read_recovery(
    layout: RecoveryLayout, path: Path, instance: RunInstance, filesystem: FileSystem
) -> RecoveryRecord | None:
    """Returns the record of the run at `path`; None if there is none. Raises OSError."""
    file = next(iter(instance.files(layout.file)), None)
    text = None if file is None else _or_none(filesystem.text, file)
    if text is None:
        return None
    match = re.search(layout.step, text)
    step = None if match is None else int(match["step"]) + layout.step_offset
    written = None if step is None else _completed_at(layout, path, instance, filesystem)
    missing = "" if written is not None else _missing_file(layout, path, instance, filesystem)
    return RecoveryRecord(step, written is not None, missing, written or 0.0)


def _missing_file(
    layout: RecoveryLayout, path: Path, instance: RunInstance, filesystem: FileSystem
) -> str:
    """Returns folder and name of the first file that is missing; empty if none is."""
    last = next(iter(instance.files(layout.written_last)), None) if layout.written_last else None
    if layout.written_last and (last is None or _modified(filesystem, last) is None):
        return "/".join(Path(layout.written_last).parts[-2:])
    newer = instance.expected_path(path, layout.newer) if layout.newer else None
    if layout.newer and (newer is None or _last_write(filesystem, newer.parent) is None):
        return "/".join(Path(layout.newer).parts[-2:])
    return ""


def _completed_at(
    layout: RecoveryLayout, path: Path, instance: RunInstance, filesystem: FileSystem
) -> float | None:
    """Returns when the record was written; None if it is not complete."""
    last = next(iter(instance.files(layout.written_last or layout.file)), None)
    written = None if last is None else _modified(filesystem, last)
    if written is None or not layout.newer:
        return written
    newer = next(iter(instance.files(layout.newer)), instance.expected_path(path, layout.newer))
    latest = None if newer is None else _last_write(filesystem, newer.parent)
    if latest is None or written + CLOCK_TOLERANCE_SECONDS < latest:
        return None
    return written


def _last_write(filesystem: FileSystem, folder: Path) -> float | None:
    """Returns the time of the last write to a file in `folder`.

    All files count, not only the file written last: while a recovery checkpoint is
    overwritten in place, the previous file of that name still exists.
    """
    names = _or_none(filesystem.list_folder, folder) or ()
    found = (_modified(filesystem, folder / named.name) for named in names if named.kind == "file")
    return max((moment for moment in found if moment is not None), default=None)


def _modified(filesystem: FileSystem, path: Path) -> float | None:
    status = _or_none(filesystem.status, path)
    return status.st_mtime if status is not None and stat.S_ISREG(status.st_mode) else None


def _or_none(read: Callable[[str], T], path: Path) -> T | None:
    """Returns None if the file does not exist."""
    try:
        return read(str(path))
    except OSError as error:
        if is_gone(error):
            return None
        raise
