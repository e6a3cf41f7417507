"""Results of a scan of a folder. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from trainwarden_exporter.step_dirs.completeness import StepDir

MAX_LISTED = 32
"""Maximum number of listed entries, for complete and incomplete ones each."""


@dataclass(frozen=True, slots=True)
class ScanResult:
    """State of a folder after a scan."""

    complete: tuple[StepDir, ...] = ()
    """The newest complete entries, newest first."""
    incomplete: tuple[StepDir, ...] = ()
    """The newest incomplete entries, newest first."""
    complete_count: int = 0
    incomplete_count: int = 0
    unexamined_count: int = 0
    """Entries that are not examined yet, or cannot be read."""
    others: tuple[str, ...] = ()
    """The first names in the folder that are none of an entry."""

    @property
    def newest(self) -> StepDir | None:
        return self.complete[0] if self.complete else None

    @property
    def in_progress(self) -> StepDir | None:
        """Returns the newest incomplete entry, if it began after the newest complete one."""
        return next(
            (step_dir for step_dir in self.incomplete if step_dir.is_newer_than(self.newest)), None
        )


EMPTY_RESULT = ScanResult()


def combine(results: Iterable[ScanResult], listed: int) -> ScanResult:
    """Merges the results of several folders."""
    results = tuple(results)
    if len(results) == 1:
        return results[0]
    return ScanResult(
        newest_of((step_dir for result in results for step_dir in result.complete), listed),
        newest_of((step_dir for result in results for step_dir in result.incomplete), listed),
        sum(result.complete_count for result in results),
        sum(result.incomplete_count for result in results),
        sum(result.unexamined_count for result in results),
        tuple(name for result in results for name in result.others),
    )


def newest_of(step_dirs: Iterable[StepDir], limit: int = MAX_LISTED) -> tuple[StepDir, ...]:
    """Returns the newest of `step_dirs`, newest first."""
    return tuple(heapq.nlargest(limit, step_dirs, key=lambda step_dir: step_dir.sort_key))


MAX_INTERVALS = 10
"""Maximum number of intervals for the median, the last ones."""

MIN_INTERVALS = 2
"""Minimum number of intervals for the median."""


class _Completion(NamedTuple):
    moment: float
    sort_key: tuple[int, str]


class CompletionIntervals:
    """Remembers completion times, including those of deleted entries."""

    def __init__(self) -> None:
        self._seen: dict[str, _Completion] = {}

    def update(self, complete: Iterable[StepDir]) -> float | None:
        """Returns the median interval in seconds including `complete`; None while unknown.

        A step that is not above the previous one began a new attempt, or was copied: its interval
        is ignored.
        """
        for step_dir in complete:
            self._seen[step_dir.name.text] = _Completion(
                step_dir.completed_at, step_dir.name.sort_key
            )
        in_time = sorted(self._seen.items(), key=lambda item: item[1])
        self._seen = dict(in_time[-2 * MAX_INTERVALS :])
        intervals = [
            later.moment - earlier.moment
            for earlier, later in pairwise(self._seen.values())
            if later.sort_key > earlier.sort_key
        ]
        return median(intervals[-MAX_INTERVALS:]) if len(intervals) >= MIN_INTERVALS else None
