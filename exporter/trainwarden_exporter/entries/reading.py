"""What a round found in a folder of entries. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from trainwarden_exporter.entries.judging import Entry

KEPT = 32
"""So many entries are told one by one, complete and incomplete ones apart."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known of a folder after a round."""

    complete: tuple[Entry, ...] = ()
    """The newest, newest first."""
    incomplete: tuple[Entry, ...] = ()
    """The newest, newest first."""
    complete_count: int = 0
    incomplete_count: int = 0
    unexamined_count: int = 0
    """Entries that were not looked at yet, or could not be."""

    @property
    def newest(self) -> Entry | None:
        """The newest complete one."""
        return self.complete[0] if self.complete else None

    @property
    def begun(self) -> Entry | None:
        """The newest incomplete one, if it was begun after the newest complete one."""
        return next((entry for entry in self.incomplete if entry.follows(self.newest)), None)


NOTHING = Reading()


def combined(readings: Iterable[Reading]) -> Reading:
    """Several folders as one."""
    readings = tuple(readings)
    if len(readings) == 1:
        return readings[0]
    return Reading(
        newest_of(entry for reading in readings for entry in reading.complete),
        newest_of(entry for reading in readings for entry in reading.incomplete),
        sum(reading.complete_count for reading in readings),
        sum(reading.incomplete_count for reading in readings),
        sum(reading.unexamined_count for reading in readings),
    )


def newest_of(entries: Iterable[Entry], most: int = KEPT) -> tuple[Entry, ...]:
    """The newest of `entries`, newest first."""
    return tuple(heapq.nlargest(most, entries, key=lambda entry: entry.order))
