"""Restart loop detection from recent starts."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

WINDOW_SECONDS = 600.0
"""Seconds for which a start counts as recent."""

LOOP_STARTS = 4
"""Number of recent starts that are a loop at any interval."""
QUICK_LOOP_STARTS = 3
"""Number of recent starts that are a loop at intervals below QUICK_LOOP_SECONDS."""
QUICK_LOOP_SECONDS = 120.0
"""Interval in seconds for QUICK_LOOP_STARTS, as in the shipped rules."""

_MAX_STARTS = 1000
_CLOCK_TOLERANCE_SECONDS = 60.0


def recent_starts(starts: Iterable[float], now: float) -> tuple[float, ...]:
    """Returns the `starts` (Unix seconds) within the last ten minutes, sorted.

    Ignores starts after `now`, from a clock that has been set since. Keeps at most the newest
    thousand.
    """
    kept = sorted(
        start for start in starts if now - WINDOW_SECONDS < start <= now + _CLOCK_TOLERANCE_SECONDS
    )
    return tuple(kept[-_MAX_STARTS:])


def median_interval(starts: Iterable[float], *, per_launch: int = 1) -> float | None:
    """Returns the median interval in seconds between starts; None for fewer than three.

    `per_launch` starts count as one if a launch starts several processes.
    """
    ordered = sorted(starts)
    distances = [
        later - sooner for sooner, later in zip(ordered, ordered[per_launch:], strict=False)
    ]
    return median(distances) if len(distances) > per_launch else None


def is_loop(starts: Iterable[float], *, per_launch: int = 1) -> bool:
    """Whether recent `starts` are a restart loop; `per_launch` as in `median_interval`."""
    ordered = sorted(starts)
    count, distance = len(ordered) // per_launch, median_interval(ordered, per_launch=per_launch)
    quick = distance is not None and distance < QUICK_LOOP_SECONDS
    return count >= (QUICK_LOOP_STARTS if quick else LOOP_STARTS)
