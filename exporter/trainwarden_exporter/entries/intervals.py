"""How far apart entries become complete, learned from those on disk and those since."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from trainwarden_exporter.entries.judging import Entry

COUNTED = 10
"""The median is that of so many intervals at most, the last ones."""
FEWEST = 2
"""Intervals that are needed to say what is usual."""


class _Completion(NamedTuple):
    moment: float
    order: tuple[int, str]


class Intervals:
    """Remembers when entries became complete, also of those that are deleted since."""

    def __init__(self) -> None:
        self._seen: dict[str, _Completion] = {}

    def after(self, complete: Iterable[Entry]) -> float | None:
        """The usual interval in seconds with what is `complete` now; None while it is not known.

        A step that is not above the one before began a new life of the run, or entries were copied
        here: such an interval tells nothing.
        """
        for entry in complete:
            self._seen[entry.name.text] = _Completion(entry.completed, entry.name.order)
        in_time = sorted(self._seen.items(), key=lambda item: item[1])
        self._seen = dict(in_time[-2 * COUNTED :])
        intervals = [
            later.moment - earlier.moment
            for earlier, later in pairwise(self._seen.values())
            if later.order > earlier.order
        ]
        return median(intervals[-COUNTED:]) if len(intervals) >= FEWEST else None
