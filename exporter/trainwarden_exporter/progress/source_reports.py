"""What each source of a run's steps has reported, and which of them contradict each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from trainwarden_exporter.progress.events import StepReported

JITTER_STEPS = 2
JITTER_SECONDS = 5.0
"""Seconds within which a source may go back slightly in the same attempt: several ranks write
one log, and not in order."""

MAX_LAG_SECONDS = 60.0
"""Seconds after which a source with a lower step is not merely lagging."""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """Last report of a source, and its attempt."""

    step: int
    timestamp: float
    """Time at which the source reports that the step was reached (Unix seconds)."""
    attempt: int
    dated: bool = True
    is_live: bool = True
    first_dated: tuple[int, float] | None = None
    """First dated step of the source in this attempt, and its time."""
    last_dated: tuple[int, float] | None = None
    """Last dated step of the source in this attempt, and its time."""
    repeat: tuple[int, float] | None = None
    """Step to which the source went slightly back, and when: another rank was late, or a process
    whose start is not known yet repeats it. Of several within seconds, the lowest."""
    same: tuple[int, float] | None = None
    """The same of a line that only reports the last step again, as the second of two lines does."""

    @classmethod
    def of(
        cls, event: StepReported, attempt: int, before: SourceReport | None = None
    ) -> SourceReport:
        """Returns the first report of a source in an attempt, after the one `before`."""
        last_dated = (event.step, event.timestamp) if event.dated else None
        return cls(
            event.step,
            event.timestamp,
            attempt,
            event.dated,
            event.is_live,
            first_dated=last_dated,
            last_dated=last_dated,
            repeat=None if before is None else before.repeat,
            same=None if before is None else before.same,
        )

    def updated(self, event: StepReported) -> SourceReport:
        """Returns the next report of the source; a repeated step keeps its time, if it had one."""
        if event.step == self.step and (self.dated or not event.dated):
            # A bar is drawn again, and a heartbeat sent again, without a new step.
            is_line = event.source.startswith("log/") and event.total_of in ("run", "line")
            again = is_line and (_is_lowest(event, self.same) if event.dated else event.is_live)
            return replace(self, same=(event.step, event.timestamp)) if again else self
        last_dated = (event.step, event.timestamp) if event.dated else self.last_dated
        return replace(
            self,
            step=event.step,
            timestamp=event.timestamp,
            dated=event.dated,
            first_dated=self.first_dated or last_dated,
            last_dated=last_dated,
        )

    def with_repeat(self, event: StepReported) -> SourceReport:
        """Returns this after the lower step of `event`."""
        again = _is_lowest(event, self.repeat)
        return replace(self, repeat=(event.step, event.timestamp)) if again else self

    def repeated_since(self, began: float) -> tuple[int, float] | None:
        """Returns the repeated step of a process that began then, of one silent before, or None."""
        since = max(began, self.timestamp + JITTER_SECONDS)
        return min((x for x in (self.repeat, self.same) if x and x[1] >= since), default=None)

    def shifted(self, seconds: float) -> SourceReport:
        """Returns this on a clock that was set by `seconds`."""
        first, last, repeat, same = (
            None if one is None else (one[0], one[1] + seconds)
            for one in (self.first_dated, self.last_dated, self.repeat, self.same)
        )
        return replace(
            self,
            timestamp=self.timestamp + seconds,
            first_dated=first,
            last_dated=last,
            repeat=repeat,
            same=same,
        )

    @property
    def at_last_dated(self) -> SourceReport:
        if self.last_dated is None:
            return self
        step, timestamp = self.last_dated
        return replace(self, step=step, timestamp=timestamp, dated=True)

    def supersedes(self, event: StepReported) -> bool:
        """Whether the lower step of `event` is only out of order."""
        return (
            self.step - event.step <= JITTER_STEPS
            and event.timestamp - self.timestamp < JITTER_SECONDS
        )


def _is_lowest(event: StepReported, known: tuple[int, float] | None) -> bool:
    """Whether a repeated step is live, and no lower one than it was repeated seconds before."""
    recent = known is not None and event.timestamp - known[1] < JITTER_SECONDS
    lower = known is not None and recent and known[0] < event.step
    return event.dated and event.is_live and not lower


class Contradiction(NamedTuple):
    """The source `stale` reports an earlier attempt than the source that began at `began`."""

    began: float
    stale: int


def find_contradiction(reports: Iterable[SourceReport]) -> Contradiction | None:
    """Returns the last contradiction among reports that were attributed to one attempt.

    A source with a lower step usually lags: a log that is flushed rarely, or a record of the last
    checkpoint. But a live source that first reported long after another last advanced, and reported
    clearly less, belongs to a newer attempt that has not reached that step.
    """
    reports = tuple(reports)
    contradictions = (
        Contradiction(one.first_dated[1], other.step)
        for one in reports
        if one.is_live and one.first_dated is not None
        for other in reports
        if _is_contradicted_by(one.first_dated, other)
    )
    return max(contradictions, default=None)


def _is_contradicted_by(first: tuple[int, float], other: SourceReport) -> bool:
    step, timestamp = first
    return other.step > step + JITTER_STEPS and other.timestamp + MAX_LAG_SECONDS < timestamp
