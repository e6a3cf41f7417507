"""How often something started of late, and at what distance: what a restart loop is told by."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

WINDOW = 600.0
"""Seconds for which a start is recent."""

LOOP_STARTS = 4
"""Starts within that time that are a loop at any pace;"""
QUICK_LOOP_STARTS = 3
"""and at a pace of less than"""
QUICK = 120.0
"""seconds, these. The shipped rules say the same."""

_MOST = 1000
_AHEAD = 60.0


def recent(starts: Iterable[float], now: float) -> tuple[float, ...]:
    """Those of `starts` within the last ten minutes, in order; all times are unix seconds.

    One that lies ahead of `now` was written by a clock that has been set since. The newest thousand
    are enough to tell a loop.
    """
    kept = sorted(start for start in starts if now - WINDOW < start <= now + _AHEAD)
    return tuple(kept[-_MOST:])


def period(starts: Iterable[float], *, together: int = 1) -> float | None:
    """The median distance in seconds from one start to the next; None for less than three.

    Of what starts several processes at once, `together` starts make one.
    """
    ordered = sorted(starts)
    distances = [later - sooner for sooner, later in zip(ordered, ordered[together:], strict=False)]
    return median(distances) if len(distances) > together else None


def is_loop(starts: Iterable[float], *, together: int = 1) -> bool:
    """Whether recent `starts` are those of a restart loop; `together` as for `period`."""
    ordered = sorted(starts)
    count, distance = len(ordered) // together, period(ordered, together=together)
    quick = distance is not None and distance < QUICK
    return count >= (QUICK_LOOP_STARTS if quick else LOOP_STARTS)
