"""Results of a scan of a folder. Pure."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from trainwarden_exporter.step_dirs.completeness import FilesByPath, StepDir

_DIGITS = re.compile(r"\d+")
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


def without_cut_short(result: ScanResult, listed: int) -> ScanResult:
    """Returns `result`, in which entries that were cut short do not count as complete.

    For entries without a proof. One was cut short if it has nothing but the files that each of the
    others had written first, and lacks a kind of file that these have: its disk was full, or its
    process was killed, and it does not change any more either. A single other one may by chance
    have more kinds of files: then those of the entry must also be smaller.
    """
    cut = [one for one in result.complete if _is_cut_short(one, result.complete)]
    if not cut:
        return result
    begun = (replace(one, complete=False, completed_at=0.0) for one in cut)
    return replace(
        result,
        complete=tuple(one for one in result.complete if one not in cut),
        incomplete=newest_of((*result.incomplete, *begun), listed),
        complete_count=result.complete_count - len(cut),
        incomplete_count=result.incomplete_count + len(cut),
    )


MIN_OTHERS = 2
"""Complete entries that show which files are written, in which order, whatever their sizes."""

WHOLE_SHARE = 0.99
"""Share of the size of the same files of another entry from which on they are as large."""


def _is_cut_short(one: StepDir, complete: Iterable[StepDir]) -> bool:
    known = [other.files for other in complete if other is not one and other.files is not None]
    if not one.files or not known:
        return False
    own = Counter(map(_kind, one.files))
    return all(
        len(files) > len(one.files)
        and not own.keys() >= set(map(_kind, files))
        and _began_with(files, own, len(one.files))
        and (len(known) >= MIN_OTHERS or one.size < WHOLE_SHARE * _least_size(files, own))
        for files in known
    )


def _began_with(files: FilesByPath, kinds: Counter[str], count: int) -> bool:
    """Whether the first `count` of these files may have been of these kinds."""
    last = sorted(file.modified for file in files.values())[count - 1]
    before = Counter(_kind(path) for path, file in files.items() if file.modified < last)
    by_then = Counter(_kind(path) for path, file in files.items() if file.modified <= last)
    return before <= kinds <= by_then


def _least_size(files: FilesByPath, kinds: Counter[str]) -> int:
    """Returns the size of as many of these files as there are of each of the kinds."""
    return sum(
        sum(
            heapq.nsmallest(
                count, (file.size for path, file in files.items() if _kind(path) == kind)
            )
        )
        for kind, count in kinds.items()
    )


def _kind(path: str) -> str:
    """Returns a name without its numbers, which are those of a step, a shard or a rank."""
    return _DIGITS.sub("0", path)


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
