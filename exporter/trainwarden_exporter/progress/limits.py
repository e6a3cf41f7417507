"""How long a run may go without a sign of progress before it is stalled. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwarden_exporter.layouts.base import Phase
from trainwarden_exporter.progress.course import Course


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, but for `factor`."""

    factor: float = 5.0
    floor: float = 60.0
    first_step: float = 1800.0
    phases: Mapping[Phase, float] = field(default_factory=dict)


def stall_limit(course: Course, limits: Limits) -> float | None:
    """Seconds since the last sign after which the run is stalled; None where it cannot be.

    That is: before anything was seen of it, and after it has finished.

    While it trains, `factor` times what is usual, and at least `floor`. What is usual is the median
    of the time between signs, or of a step where that is more. Until a step of this attempt was
    seen to be made, and while too few are known to tell, the limit of the first step holds:
    whatever is loaded, compiled and captured, is so then.
    """
    if course.sign is None or course.finished:
        return None
    if course.phase is not None and course.phase in limits.phases:
        return limits.phases[course.phase]
    usual = course.pace.usual_silence
    if usual is None or course.heard is None or not course.heard.dated:
        return max(limits.first_step, limits.floor)
    return max(limits.floor, limits.factor * usual)
