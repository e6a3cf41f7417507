"""State of a run's progress: its attempts, its counts, and what is known of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.progress.epochs import Epochs
from trainwarden_exporter.progress.events import ResumePoints, StepReported
from trainwarden_exporter.progress.source_reports import SourceReport
from trainwarden_exporter.progress.step_lines import StepLines
from trainwarden_exporter.progress.step_timing import ProgressSign, StepMark, StepTiming

HEARTBEAT = "heartbeat"
"""First part of the source of a step that a heartbeat carries."""

CHECKPOINT = "checkpoint"
"""The same of a complete checkpoint, whose time is the end of its save."""

SETTLED_SECONDS = 5.0
"""Seconds after a start during which the last lines of the previous attempt may still arrive."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt: the run from one start of its trainer to the next."""

    number: int = 0
    began: float = 0.0
    """Unix seconds; older reports belong to an earlier attempt."""
    counts_from: float = 0.0
    """The same of an earlier training in this attempt, as of the first of two in a script."""
    started: bool = False
    """Whether a start was observed, or only repeated steps."""
    witnessed: bool = True
    """Whether the run was observed at that time."""
    announced_step: int | None = None
    """The step from which the run says it continues."""
    previous_step: int | None = None
    """The step of the run before this attempt."""
    previous_unsure: bool = False
    """Whether the previous step may be one of this attempt, learned before its start."""
    previous_recorded: bool = False
    """Whether records alone show it: they may be those of another run in the same folder."""
    first_step: int | None = None
    """First step observed in this attempt."""
    spacing: int | None = None
    """Least difference of two successive steps, also of earlier attempts: N where one line in N
    steps is logged. None while there were no two."""
    counted_step: int | None = None
    """The last step that was reported live before this attempt; None if the run had finished."""
    checkpoint_step: int | None = None
    """The step of the newest sound checkpoint at its start; None if unknown."""

    @property
    def since(self) -> float:
        """The time from which on reports count."""
        return max(self.began, self.counts_from)

    @property
    def resumed(self) -> bool:
        """Whether it makes steps after an earlier attempt made some."""
        if self.first_step is None:
            return False
        from_start = self.previous_recorded and self.first_step <= (self.spacing or 1)
        if self.previous_step is None or from_start:
            return bool(self.announced_step)
        if self.previous_unsure:
            return self.first_step <= self.previous_step
        return self.witnessed or self.first_step <= self.previous_step + 1

    @property
    def origin(self) -> int | None:
        """The step from which it continued; None if unknown or not resumed."""
        if self.announced_step:
            return self.announced_step
        if self.first_step is None or not self.resumed:
            return None
        return self.first_step - 1 if self.announced_step is None else self.announced_step

    @property
    def known_origin(self) -> int | None:
        """The same; None also if steps before the first observed one may not have been logged."""
        return self.origin if self.announced_step is not None or self.spacing == 1 else None

    @property
    def repeated(self) -> int:
        """Steps that were lost and are repeated."""
        if self.origin is None or self.previous_step is None or not self.resumed:
            return 0
        return max(0, self.previous_step - self.origin)

    @property
    def expected_origin(self) -> int | None:
        """The step of the checkpoint from which it should have continued; None if unknown.

        Only of an observed start, and where the names of checkpoints plainly count what the run
        counts: a name may have epochs, or samples.
        """
        known = self.started and self.witnessed and self.resumed and self.origin is not None
        if not known or self.checkpoint_step is None or self.counted_step is None:
            return None
        return self.checkpoint_step if self.checkpoint_step <= 2 * self.counted_step else None

    @property
    def lost(self) -> int:
        """Steps before that checkpoint that are repeated, because it continued elsewhere."""
        if self.expected_origin is None or self.origin is None:
            return 0
        return max(0, self.expected_origin - self.origin)

    def with_spacing(self, apart: int) -> Attempt:
        """Returns the attempt after two successive steps."""
        return self if apart < 1 else replace(self, spacing=min(apart, self.spacing or apart))

    def with_late_step(self, event: StepReported, known: SourceReport | None) -> Attempt:
        """Returns the attempt after a step of the one before, which is read after its start.

        `known` is what the same source reported before.
        """
        went_on = known is not None and known.attempt == self.number - 1 and event.step > known.step
        if self.previous_step is None or not (went_on and event.is_live and event.dated):
            return self
        return replace(self, previous_step=max(event.step, self.previous_step))

    def with_resume_points(self, points: ResumePoints) -> Attempt:
        """Returns the attempt with what is known of the checkpoints at its start.

        A run continues from all kinds of its checkpoints at once, so the oldest of their newest
        ones counts.
        """
        if self.checkpoint_step is not None or not self.started:
            return self
        before = ([(at, step) for step, at in kind if at <= self.began] for kind in points)
        newest = [max(found)[1] for found in before if found]
        return replace(self, checkpoint_step=min(newest, default=None))


def find_first_step(reports: Iterable[SourceReport], attempt: Attempt, known: int) -> int:
    """Returns the first step of `attempt`, where `known` is the first that counts as one of it.

    Before its start was known, it may have repeated lower ones. These alone show no step of it:
    they may be late lines of the process before.
    """
    found = [one for report in reports for one in (report.repeat, report.same) if attempt.started]
    return min([known, *(one[0] for one in found if one and one[1] >= attempt.began)])


@dataclass(frozen=True, slots=True)
class Count:
    """What a source counts up to one total: steps of the training, or of an evaluation."""

    source: str
    total: int | None
    began: float
    """Since when it counts while the training makes no step (Unix seconds)."""
    drawn: tuple[int, ...] = ()
    """The last different numbers: several bars of one length may be drawn again in turn."""
    in_turn: bool = False
    """Whether they are."""
    made: int = 0
    """Steps since then."""
    is_evaluation: bool = False
    """Whether it was once taken for the training, and was not."""
    training: RunProgress | None = None
    """The state when another count was taken for the training after it, in case it was not."""

    @property
    def key(self) -> tuple[str, int | None]:
        return self.source, self.total


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of a run. Times are Unix seconds; None means unknown."""

    reports: Mapping[str, SourceReport] = field(default_factory=dict)
    """Reports by source, including those of an earlier attempt."""
    attempt: Attempt = field(default_factory=Attempt)
    steps: tuple[StepMark, ...] = ()
    """Last steps of this attempt in increasing order."""
    last_sign: ProgressSign | None = None
    """Last sign of progress of this attempt; of simultaneous signs, the first."""
    earlier_sign: ProgressSign | None = None
    """Last sign of an earlier attempt that was learned after the start of this one."""
    timing: StepTiming = field(default_factory=StepTiming)
    phase: Phase | None = None
    phase_began_at: float | None = None
    """Start of the phase."""
    last_sign_at: float | None = None
    """Last sign of progress: a step, a change of phase or a start."""
    interrupted_at: float = 0.0
    """Last external interruption: unobserved time, or the restart of one of several trainers. A
    silence that began earlier says nothing about the run."""
    record_silence: float = 0.0
    """Time between the checkpoints of earlier attempts on disk; 0 while unknown."""
    total: int | None = None
    """Total steps, as the run reports them."""
    bar_total: int | None = None
    """Total of the progress bar that counts the steps of the run."""
    epoch_total: int | None = None
    """Steps of an epoch, where the count begins again in each."""
    line_total: int | None = None
    """Total in lines such as `step 121/300`."""
    counts: tuple[Count, ...] = ()
    """What the logs count, the last one to move last."""
    lines: StepLines = field(default_factory=StepLines)
    """The form of the lines in which it logs its steps."""
    epochs: Epochs = field(default_factory=Epochs)
    """The epochs that it has reported."""
    evaluations_seen: bool = False
    """Whether the run has ever reported the start of an evaluation."""
    paused_seconds: float = 0.0
    """Seconds of this attempt in phases that are not part of a step."""
    resumes_before: int = 0
    repeated_before: int = 0
    lost_before: int = 0

    @property
    def step(self) -> int | None:
        """Completed steps; None before the first, unless the run reported where it continues."""
        return self.steps[-1].step if self.steps else self.attempt.announced_step

    @property
    def total_steps(self) -> int | None:
        """Total steps; None if unknown.

        The total in lines is that of the run, unless it may be that of an epoch or its count begins
        again.
        """
        known = self.bar_total if self.total is None else self.total
        if known is not None or self.line_total is None or (self.step or 0) > self.line_total:
            return known
        return None if self.epochs.may_divide(self.line_total) else self.line_total

    @property
    def last_step_at(self) -> float | None:
        """Time of the last completed step."""
        return self.steps[-1].timestamp if self.steps and self.steps[-1].dated else None

    @property
    def resumes(self) -> int:
        """Number of resumes from an earlier step over all attempts."""
        return self.resumes_before + self.attempt.resumed

    @property
    def repeated(self) -> int:
        """Number of repeated steps over all attempts."""
        return self.repeated_before + self.attempt.repeated

    @property
    def lost(self) -> int:
        """Number of repeated steps that a resume from the newest sound checkpoint had kept."""
        return self.lost_before + self.attempt.lost

    @property
    def finished(self) -> bool:
        return self.phase is Phase.FINISHED

    @property
    def starting(self) -> bool:
        """Whether reports may still belong to the attempt before an observed start."""
        settled = self.attempt.began + SETTLED_SECONDS
        return self.attempt.started and all(mark.timestamp <= settled for mark in self.steps)
