"""One life of a run, from the start of its trainer to the next, and what each source said in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from trainwarden_exporter.progress.observations import StepSeen

JITTER_STEPS = 2
JITTER_SECONDS = 5.0
"""By how little and how soon a source may go back without meaning it: several ranks write one log,
and not in turn."""

PATIENCE = 60.0
"""Seconds after which a source that says less than another did is not merely behind it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A life of the run, and how it took over from the one before."""

    number: int = 0
    began: float = 0.0
    """Unix seconds; what is older belongs to an earlier life."""
    started: bool = False
    """Whether a start was seen, or only that steps were made anew."""
    witnessed: bool = True
    """Whether the run was watched from there on."""
    told: int | None = None
    """The step that it said it goes on from."""
    before: int | None = None
    """The step at which the run stood before."""
    first: int | None = None
    """The first step seen of it."""

    @property
    def resumed(self) -> bool:
        """Whether it makes steps, and is not the first to do so."""
        if self.first is None:
            return False
        if self.before is None:
            return bool(self.told)
        return self.witnessed or self.first <= self.before + 1

    @property
    def origin(self) -> int | None:
        """The step that it went on from; None while that is not known, or it did not resume."""
        if self.told:
            return self.told
        if self.first is None or not self.resumed:
            return None
        return self.first - 1 if self.told is None else self.told

    @property
    def repeated(self) -> int:
        """Steps that were lost, and so are done again."""
        if self.origin is None or self.before is None or not self.resumed:
            return 0
        return max(0, self.before - self.origin)


@dataclass(frozen=True, slots=True)
class Reading:
    """The last thing that a source said, and in which attempt."""

    step: int
    timestamp: float
    """When the run came to that step, by this source (unix seconds)."""
    attempt: int
    dated: bool = True
    tells: bool = True
    first: tuple[int, float] | None = None
    """The first dated step that it said in this attempt, and when."""
    sure: tuple[int, float] | None = None
    """The last one."""

    @classmethod
    def of(cls, seen: StepSeen, attempt: int) -> Reading:
        """What a source says first in an attempt."""
        sure = (seen.step, seen.timestamp) if seen.dated else None
        return cls(seen.step, seen.timestamp, attempt, seen.dated, seen.tells, sure, sure)

    def after(self, seen: StepSeen) -> Reading:
        """What it says next; of a step that it said before, the time stays, unless it had none."""
        if seen.step == self.step and (self.dated or not seen.dated):
            return self
        sure = (seen.step, seen.timestamp) if seen.dated else self.sure
        return replace(
            self,
            step=seen.step,
            timestamp=seen.timestamp,
            dated=seen.dated,
            first=self.first or sure,
            sure=sure,
        )

    @property
    def surely(self) -> Reading:
        """What it said with a time."""
        if self.sure is None:
            return self
        step, timestamp = self.sure
        return replace(self, step=step, timestamp=timestamp, dated=True)

    def outdoes(self, seen: StepSeen) -> bool:
        """Whether `seen`, which is less than this, is only out of turn."""
        return (
            self.step - seen.step <= JITTER_STEPS
            and seen.timestamp - self.timestamp < JITTER_SECONDS
        )


class Contradiction(NamedTuple):
    """What said `stale` is of an earlier life than what was said first at `began`."""

    began: float
    stale: int


def contradiction(readings: Iterable[Reading]) -> Contradiction | None:
    """Whether `readings`, taken for those of one attempt, are of two; the last such place.

    A source that says less than another is usually behind: a log that is flushed seldom, a record
    of the last checkpoint. But who speaks of steps as they happen, was first heard long after the
    other last moved, and said less by more than a slip of counting, speaks of a life in which that
    step has not been made.
    """
    said = tuple(readings)
    places = (
        Contradiction(one.first[1], other.step)
        for one in said
        if one.tells and one.first is not None
        for other in said
        if _contradicts(one.first, other)
    )
    return max(places, default=None)


def _contradicts(first: tuple[int, float], other: Reading) -> bool:
    step, timestamp = first
    return other.step > step + JITTER_STEPS and other.timestamp + PATIENCE < timestamp
