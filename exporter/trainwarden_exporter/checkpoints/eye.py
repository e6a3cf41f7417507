"""Looks at the checkpoints of a run, over and over, and says how they stand."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.checkpoints.recovery import Recovery, read_recovery
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.disk.space import Space, read_space
from trainwarden_exporter.entries.disk import Disk
from trainwarden_exporter.entries.intervals import Intervals
from trainwarden_exporter.entries.judging import Entry
from trainwarden_exporter.entries.naming import Naming
from trainwarden_exporter.entries.place import Entries, Finder
from trainwarden_exporter.entries.reading import NOTHING, Reading

INTERVAL = 10.0
"""Seconds between two looks."""

Measure = Callable[[Path], Space]


def _measure(path: Path) -> Space:
    return read_space(path, or_above=True)


@dataclass(frozen=True, slots=True)
class CheckpointsSeen:
    """How the checkpoints of one kind stand. Moments are Unix seconds."""

    folders: int = 0
    """Folders that were found; 0 while there is none yet."""
    reading: Reading = NOTHING
    interval: float | None = None
    """Seconds between two of them, the median of those seen."""
    recovery: Recovery | None = None
    space: Space | None = None
    """Of the disk that they lie on; None where that could not be asked."""

    @property
    def save_seconds(self) -> float | None:
        """How long the newest complete one took to write; None for a single file."""
        newest = self.reading.newest
        if newest is None or newest.files is None or len(newest.files) < 2:  # noqa: PLR2004 - the first and the last write
            return None
        before = self.reading.complete[1:2]
        began = newest.began(after=before[0].completed if before else 0.0)
        return max(0.0, newest.completed - began)

    @property
    def begun(self) -> tuple[Entry, float] | None:
        """The incomplete one that is newer than the newest complete one, and since when it is."""
        if (entry := self.reading.begun) is None:
            return None
        newest = self.reading.newest
        return entry, entry.began(after=0.0 if newest is None else newest.completed)


class CheckpointEye:
    """The look of a watch: each call is one round. For one thread."""

    def __init__(
        self,
        spec: CheckpointSpec,
        *,
        finder: Finder | None = None,
        disk: Disk | None = None,
        measure: Measure = _measure,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        layout = spec.layout
        self._spec = spec
        self._disk = disk or Disk()
        self._measure = measure
        self._entries = Entries(
            finder or Finder(spec.place, clock=clock),
            layout.folder,
            Naming(layout.entry, layout.partial),
            layout.proof,
            disk=self._disk,
            now=now,
            clock=clock,
        )
        self._intervals = Intervals()
        self._folders: frozenset[Path] = frozenset()

    def __call__(self) -> CheckpointsSeen:
        """Raises OSError where a folder cannot be read."""
        reading = self._entries.look()
        folders = frozenset(self._entries.folders)
        if not folders & self._folders:
            self._intervals = Intervals()  # another run's are not this one's
        self._folders = folders
        return CheckpointsSeen(
            len(folders),
            reading,
            self._intervals.after(reading.complete),
            self._read_recovery(),
            self._read_space(),
        )

    def _read_recovery(self) -> Recovery | None:
        layout, instance = self._spec.layout.recovery, self._entries.instance
        if layout is None or instance is None:
            return None
        return read_recovery(layout, self._spec.place.path, instance, self._disk)

    def _read_space(self) -> Space | None:
        where = next(iter(self._entries.folders), self._entries.expected)
        try:
            return None if where is None else self._measure(where)
        except OSError:
            return None  # what keeps us from asking is told by the disk's own collector
