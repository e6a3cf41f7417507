"""What repeats: starts in a row without progress, and attempts that end at one step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from trainwarden.autopsy import patterns
from trainwarden.autopsy.model import LogReading

MIN_STARTS = 3
MIN_PERIOD_SECONDS = 2.0
"""Starts at a shorter distance are those of many ranks, not of a loop."""
MAX_PERIOD_SECONDS = 900.0
NEAR_STEPS = 2


@dataclass(frozen=True, slots=True)
class StartLoop:
    """Starts in a row without progress."""

    file: str
    count: int
    period: float | None
    """Median distance in seconds."""
    first_at: float | None
    last_at: float | None
    errors: int
    """Lines that report a failed start, an exit or another error, in the same file."""


@dataclass(frozen=True, slots=True)
class SameStep:
    """Attempts that ended at about the same step."""

    ended: int
    of: int
    step: int
    spread: int


def same_step_of(ends: Sequence[int]) -> SameStep | None:
    """Returns the step at which at least three, and more than half, of `ends` are; else None."""
    if len(ends) < MIN_STARTS:
        return None
    step, near = max(
        ((step, [end for end in ends if abs(end - step) <= NEAR_STEPS]) for step in set(ends)),
        key=lambda one: (len(one[1]), one[0]),
    )
    if len(near) < MIN_STARTS or 2 * len(near) <= len(ends) or step <= NEAR_STEPS:
        return None
    center = Counter(near).most_common(1)[0][0]
    return SameStep(len(near), len(ends), center, max(abs(end - center) for end in near))


def loop_of(log: LogReading) -> StartLoop | None:
    """Returns the longest row of starts without progress in `log`, if there is one."""
    if log.log.source != "log":
        return None
    failures = sum(log.tallies[kind].count for kind in patterns.ERRORS if kind in log.tallies)
    exits = log.tallies.get("exit_status")
    failures += 0 if exits is None else sum(n for code, n in exits.codes.items() if code != "0")
    loops = []
    for kind in ("start", "start_failed", patterns.FIRST_LINE):
        tally = log.tallies.get(kind)
        if tally is None or tally.count < MIN_STARTS or 2 * failures < tally.count:
            continue
        if kind == "start_failed" or log.idle_starts >= MIN_STARTS:
            period = _period(tally.times)
            is_certain = period is None and kind != patterns.FIRST_LINE
            if is_certain or (
                period is not None and MIN_PERIOD_SECONDS <= period <= MAX_PERIOD_SECONDS
            ):
                loops.append(
                    StartLoop(
                        log.name, tally.count, period, tally.first.at, tally.last.at, failures
                    )
                )
    return max(loops, key=lambda loop: loop.count, default=None)


def _period(times: Sequence[float]) -> float | None:
    gaps = [later - earlier for earlier, later in pairwise(sorted(times))]
    return median(gaps) if len(gaps) >= MIN_STARTS - 1 else None
