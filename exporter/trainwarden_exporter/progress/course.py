"""Where a run stands: what all that was seen of it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwarden_exporter.layouts.base import Phase
from trainwarden_exporter.progress.attempt import Attempt, Reading
from trainwarden_exporter.progress.pace import Mark, Pace, Sign

SETTLED_SECONDS = 5.0
"""How long after a start the last lines of the life before it may still come in."""


@dataclass(frozen=True, slots=True)
class Course:
    """Where a run stands. Moments are Unix seconds; None is not known."""

    readings: Mapping[str, Reading] = field(default_factory=dict)
    """By source, also those that are of an earlier attempt."""
    attempt: Attempt = field(default_factory=Attempt)
    marks: tuple[Mark, ...] = ()
    """The last steps of this attempt, each higher than the one before."""
    heard: Sign | None = None
    """The last sign that this attempt goes forward, of those that are one the first."""
    pace: Pace = field(default_factory=Pace)
    phase: Phase | None = None
    since: float | None = None
    """When the phase began."""
    sign: float | None = None
    """The last sign of progress: a step, a change of phase, a start."""
    interrupted: float = 0.0
    """When something last came between that the run does not do itself: nobody watched, or one of
    its several trainers started anew. A silence that began before then says nothing of the run."""
    total: int | None = None
    paused: float = 0.0
    """Seconds of this attempt in which the run did what is no part of a step."""
    resumes_before: int = 0
    repeated_before: int = 0

    @property
    def step(self) -> int | None:
        """Steps done. None before an attempt has made one, unless it said where it goes on."""
        return self.marks[-1].step if self.marks else self.attempt.told

    @property
    def stepped(self) -> float | None:
        """When the last step was done."""
        last = self.marks[-1] if self.marks else None
        return last.timestamp if last is not None and last.dated else None

    @property
    def resumes(self) -> int:
        """How often it went on from an earlier step, over all attempts."""
        return self.resumes_before + self.attempt.resumed

    @property
    def repeated(self) -> int:
        """Steps that were done again, over all attempts."""
        return self.repeated_before + self.attempt.repeated

    @property
    def finished(self) -> bool:
        return self.phase is Phase.FINISHED

    @property
    def starting(self) -> bool:
        """Whether a start was seen of which all that came since may belong to the life before."""
        settled = self.attempt.began + SETTLED_SECONDS
        return self.attempt.started and all(mark.timestamp <= settled for mark in self.marks)
