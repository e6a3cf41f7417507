"""Looks at one kind of rollouts of a run, over and over, and says how they stand."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from trainwarden_exporter.entries.disk import Disk
from trainwarden_exporter.entries.intervals import Intervals
from trainwarden_exporter.entries.judging import Entry
from trainwarden_exporter.entries.naming import Naming
from trainwarden_exporter.entries.place import Entries, Finder
from trainwarden_exporter.entries.reading import NOTHING, Reading, newest_of
from trainwarden_exporter.layouts.base import RolloutLayout
from trainwarden_exporter.rollouts.ranks import AllRanks, Ranks
from trainwarden_exporter.rollouts.writing import Folder, read_folder

INTERVAL = 5.0
"""Seconds between two looks."""


@dataclass(frozen=True, slots=True)
class RolloutsSeen:
    """How the rollouts of one kind stand. Moments are Unix seconds."""

    folders: int = 0
    """Folders that were found; 0 while there is none yet."""
    reading: Reading = NOTHING
    passed: Entry | None = None
    """The newest that was complete, where it is gone: consumed, and then deleted."""
    ranks: int | None = None
    """Ranks whose share of the newest entry is there, complete or not."""
    expected_ranks: int | None = None
    interval: float | None = None
    """Seconds between two of them, the median of those seen."""
    folder: Folder | None = None
    """Where the next one is to be written, as far as we may look."""

    def newest(self, needed: int | None, offset: int) -> Entry | None:
        """The newest complete one for a trainer that needs step `needed` next.

        One that is gone counts if it may have been consumed: it did its service. If it was for a
        later step, it was cleared away when the run went back.
        """
        there, passed = self.reading.newest, self.passed
        if passed is None or (there is not None and there.order >= passed.order):
            return there
        step = passed.step(offset)
        return passed if step is None or needed is None or step <= needed else there


class RolloutEye:
    """The look of a watch: each call is one round. For one thread."""

    def __init__(
        self,
        finder: Finder,
        layout: RolloutLayout,
        *,
        ranks: int | None = None,
        disk: Disk | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ranks` is how many a complete entry has; learned when None."""
        self._ranks = Ranks(layout.rank, ranks) if layout.rank else None
        self._entries = Entries(
            finder,
            layout.folder,
            Naming(layout.entry),
            AllRanks(self._ranks, layout.proof) if self._ranks else layout.proof,
            disk=disk,
            now=now,
            clock=clock,
        )
        self._intervals = Intervals()
        self._newest: Entry | None = None
        self._folders: frozenset[Path] = frozenset()

    def __call__(self) -> RolloutsSeen:
        """Raises OSError where a folder cannot be read."""
        reading = self._look()
        folders = frozenset(self._entries.folders)
        if not folders & self._folders:  # another run's are not this one's
            self._intervals, self._newest = Intervals(), None
        self._folders = folders
        known = _known(reading)
        seen = RolloutsSeen(
            len(folders),
            reading,
            self._passed(reading),
            interval=self._intervals.after(reading.complete),
            folder=self._read_folder(known[0].name.text if known else None),
        )
        if self._ranks is None:
            return seen
        files = known[0].files if known else None
        there = None if files is None else len(self._ranks.of(files))
        return replace(seen, ranks=there, expected_ranks=self._ranks.expected)

    def _look(self) -> Reading:
        reading = self._entries.look()
        if self._ranks is not None and self._ranks.learn(_known(reading)):
            # what was held to another number of ranks is not what it seemed
            self._entries.forget()
            reading = self._entries.look()
        return reading

    def _passed(self, reading: Reading) -> Entry | None:
        if self._newest is None or (
            reading.newest is not None and reading.newest.order > self._newest.order
        ):
            self._newest = reading.newest
        newest = self._newest
        there = newest is None or any(entry.name == newest.name for entry in _known(reading))
        return None if there else newest

    def _read_folder(self, newest: str | None) -> Folder | None:
        where = next(iter(self._entries.folders), self._entries.expected)
        return None if where is None else read_folder(where, newest)


def _known(reading: Reading) -> tuple[Entry, ...]:
    """Complete or not, newest first."""
    return newest_of((*reading.complete, *reading.incomplete))
