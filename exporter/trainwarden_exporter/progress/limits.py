"""How long a run may go without a sign of progress before it is stalled. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwarden_exporter.layouts.base import Phase
from trainwarden_exporter.progress.course import Course

LEEWAY = 2.0
"""Times the longest pause that ended well that the next may take: a person is warned at three
fifths of it, and so of none that takes a fifth longer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, but for the factors."""

    factor: float = 5.0
    floor: float = 60.0
    first_step: float = 1800.0
    restart_factor: float = 25.0
    restart_floor: float = 1800.0
    phases: Mapping[Phase, float] = field(default_factory=dict)


def stall_limit(course: Course, limits: Limits) -> float | None:
    """Seconds since the last sign after which the run is stalled; None where it cannot be.

    That is: before anything was seen of it, and after it has finished.

    While it trains, `factor` times what is usual, and at least `floor`. What is usual is the median
    of the time between signs, or of a step where that is more; where no steps are made, the longest
    time between signs of late. Until a step of this attempt was seen to be made, and while too few
    are known to tell, the limit of the first step holds: whatever is loaded, compiled and captured,
    is so then.
    """
    if course.sign is None or course.finished:
        return None
    if course.phase is not None and course.phase in limits.phases:
        return limits.phases[course.phase]
    longest = None if _usual(course, limits) is None else course.pace.longest_usual
    if longest is None:
        return max(limits.first_step, limits.floor)
    return max(limits.floor, limits.factor * longest)


def pause_limit(course: Course, limits: Limits) -> float | None:
    """The same where nothing but the silence tells of trouble: pauses that ended well count too.

    So an evaluation of which nothing is told is a surprise only once; but none is longer than one
    that is told may be.
    """
    limit = stall_limit(course, limits)
    if limit is None or _usual(course, limits) is None:
        return limit
    longest = limits.phases.get(Phase.EVALUATING, float("inf"))
    return max(limit, min(LEEWAY * course.pace.longest_pause, longest))


def restart_limit(course: Course, limits: Limits, *, told: bool) -> float | None:
    """Seconds after which the silence alone is reason enough to restart the run.

    Where evaluations are `told` as they begin, that is when it is stalled. Where they are not, the
    silence may be the first: then `restart_factor` times a usual step, and at least
    `restart_floor`.
    """
    limit, usual = pause_limit(course, limits), _usual(course, limits)
    if limit is None or usual is None or told:
        return limit
    return max(limit, limits.restart_floor, limits.restart_factor * (course.pace.typical or usual))


def _usual(course: Course, limits: Limits) -> float | None:
    """The usual silence of a run that trains; None while that is not known.

    And in a phase that has a limit of its own.
    """
    if course.phase in limits.phases or course.heard is None or not course.heard.dated:
        return None
    return course.pace.usual_silence
