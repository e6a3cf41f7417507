"""Step times of a run: durations of recent steps, and times between signs of progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple

MAX_RECENT = 32
"""Number of steps for the median."""

MIN_SIGNS = 3
"""Minimum number of signs for a usual time: the first steps are slow, each in its own way."""

MIN_SIGNS_STEPLESS = 8
"""Minimum number for a typical time of runs without steps, whose workers report independently and
thus irregularly."""

FEW_SIGNS_FACTOR = 3.0
"""Multiple of the longest known silence that counts as usual while there are fewer."""

MAX_USUAL_FACTOR = 6.0
"""Multiple of the median above which a silence counts as a pause in such runs."""

BURST_SECONDS = 0.05
"""Seconds within which lines were read together, so that the times between them mean nothing."""

PAUSE_FACTOR = 2.0
"""Multiple of the usual silence from which on a silence is a pause: the run did something that
not every step does.
"""

MAX_PAUSE_AGE = 4096
"""Number of silences after which a pause is forgotten: some runs evaluate once in a thousand
steps, but a one-off event, such as a suspended machine, must not count forever."""

MAX_PAUSES = 8
"""Maximum number of pauses to keep, the longest ones."""

MIN_REPORT_SECONDS = 10.0
REPORT_STEPS = 2.0
"""Seconds, and multiple of the time of a step, from which on a run reports several steps at once.
On a busy host the steps of some seconds are read together.
"""

SAME_SIGN_SECONDS = 1.0
"""Seconds within which signs count as one: a step may cause several signs and several lines."""


class StepMark(NamedTuple):
    """A step and its time (Unix seconds; the time of reading, if not `dated`)."""

    step: int
    timestamp: float
    dated: bool = True
    paused_seconds: float = 0.0
    """Seconds spent in other phases until then."""
    reports: int = 1
    """Number of steps that were reported until then, of lines that were read together and have no
    time of their own."""


class ProgressSign(NamedTuple):
    """A sign of progress; like a step mark, without the step."""

    timestamp: float
    dated: bool = True
    paused_seconds: float = 0.0


class Pause(NamedTuple):
    """A harmless silence: its number, and its seconds including a step."""

    number: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StepTiming:
    """Times in seconds, newest last.

    Steps and signs differ: a run that reports every tenth step is silent for ten steps without
    being stalled. Saving and evaluating count for neither.
    """

    durations: tuple[float, ...] = ()
    """Durations of steps."""
    intervals: tuple[float, ...] = ()
    """Times between signs."""
    reports_duration: bool = False
    """Whether the run itself reports step durations."""
    silences: int = 0
    """Number of harmless silences since the usual time is known."""
    pauses: tuple[Pause, ...] = ()
    """The longest recent pauses, each longer than all after it."""
    from_records: bool = False
    """Whether all of this is known from checkpoints alone: some steps between two of them may have
    hung, been evaluated or been repeated."""
    first_silence: float = 0.0
    """Time from the last observed start to its first sign, which includes loading."""

    @property
    def last(self) -> float | None:
        """Duration of the last step."""
        return self.durations[-1] if self.durations else None

    @property
    def typical(self) -> float | None:
        """Median step duration."""
        return median(self.durations) if self.durations else None

    @property
    def undisturbed(self) -> float | None:
        """Median duration of the faster half of the steps."""
        count = max(1, len(self.durations) // 2)
        return median(sorted(self.durations)[:count]) if self.durations else None

    @property
    def usual_silence(self) -> float | None:
        """Usual time between signs; None while too few are known."""
        if len(self.intervals) < MIN_SIGNS:
            return None
        return max(median(self.intervals), self.typical or 0.0)

    @property
    def report_seconds(self) -> float | None:
        """Usual time between reports of several steps each; None if it is about that of a step.

        A bar of Lightning that is not drawn in a terminal is printed once in an epoch.
        """
        usual, typical = self.usual_silence, self.typical
        if usual is None or typical is None or usual < MIN_REPORT_SECONDS:
            return None
        return usual if usual > REPORT_STEPS * typical else None

    @property
    def longest_usual_silence(self) -> float | None:
        """Longest time between signs that is still usual; None while unknown.

        For steps, the median counts. For runs without steps, the longest recent time counts: trials
        that end at random have silences of five times their median every few dozen. Trials that
        began together end together, so the time to the first of them counts too.
        """
        usual = self.usual_silence
        if usual is None or self.durations:
            return usual
        if len(self.intervals) < MIN_SIGNS_STEPLESS:
            return self.longest_silence
        longest = min(max(self.intervals), MAX_USUAL_FACTOR * usual)
        return longest if len(self.intervals) == MAX_RECENT else max(longest, self.first_silence)

    @property
    def longest_silence(self) -> float:
        """Silence that cannot be excluded as usual, from few signs or from one; 0 without any."""
        return max(self.first_silence, FEW_SIGNS_FACTOR * max(self.intervals, default=0.0))

    @property
    def longest_pause(self) -> float:
        """The longest recent harmless silence beyond the usual ones, else 0."""
        return self.pauses[0].seconds if self.pauses else 0.0

    def with_step(
        self, previous: StepMark | None, mark: StepMark, seconds: float | None
    ) -> StepTiming:
        """Returns the timing with `mark`, which follows `previous` in the same attempt.

        `seconds` is the step duration reported by the run.
        """
        if seconds is not None:
            timing = replace(
                self, durations=_appended(self.durations, seconds), reports_duration=True
            )
            if previous is None or (previous.dated and mark.dated):
                return timing
            # Lines read together have no times between them, but stand for so many steps of that
            # length.
            silence = seconds * (mark.step - previous.step)
            return replace(timing, intervals=_appended(self.intervals, silence))
        if self.reports_duration or previous is None or not (previous.dated and mark.dated):
            return self
        each = _seconds_between(previous, mark) / (mark.step - previous.step)
        return replace(self, durations=_appended(self.durations, each))

    def with_burst(
        self, previous: StepMark | None, mark: StepMark, seconds: float | None
    ) -> StepTiming:
        """Returns the timing when the last mark stands for several steps, up to that of `mark`.

        So a log that is flushed once in a hundred steps yields true durations.
        """
        if seconds is None and (self.reports_duration or previous is None or not previous.dated):
            return self
        return replace(self, durations=self.durations[:-1]).with_step(previous, mark, seconds)

    def with_sign(self, previous: ProgressSign, sign: ProgressSign) -> StepTiming:
        """Returns the timing with `sign`, which follows `previous`."""
        intervals = _appended(self.intervals, _seconds_between(previous, sign))
        return replace(self, intervals=intervals, from_records=False)

    def with_records(self, marks: Sequence[StepMark]) -> StepTiming:
        """Returns the timing with the distances of `marks`, if they are more than known so far."""
        timing = StepTiming()
        for previous, mark in pairwise(marks):
            sign = ProgressSign(mark.timestamp)
            timing = timing.with_step(previous, mark, None).with_sign(
                ProgressSign(previous.timestamp), sign
            )
        if len(timing.intervals) <= len(self.intervals):
            return self
        durations = self.durations if self.reports_duration else timing.durations
        return replace(self, intervals=timing.intervals, durations=durations, from_records=True)

    def with_silence(self, seconds: float, *, stepless: bool = False) -> StepTiming:
        """Returns the timing after a silence that ended without a restart.

        The first silences are ignored, because they include loading, compilation and graph capture.
        A silence ended by the start of a save, not by a step, is `stepless`: the next one may
        include a step.
        """
        usual = self.usual_silence
        if usual is None:
            return self
        if stepless:
            seconds += usual
        number = self.silences + 1
        pauses = tuple(
            one
            for one in self.pauses
            if one.seconds > seconds and number - one.number < MAX_PAUSE_AGE
        )
        if seconds > PAUSE_FACTOR * usual:
            pauses = (*pauses, Pause(number, seconds))[:MAX_PAUSES]
        return replace(self, silences=number, pauses=pauses)


def _seconds_between(one: StepMark | ProgressSign, other: StepMark | ProgressSign) -> float:
    return max(0.0, other.timestamp - one.timestamp - (other.paused_seconds - one.paused_seconds))


def _appended(values: tuple[float, ...], value: float) -> tuple[float, ...]:
    return (*values, value)[-MAX_RECENT:]
