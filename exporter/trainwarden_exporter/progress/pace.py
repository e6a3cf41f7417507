"""How fast a run goes: what its last steps took, and how far apart the signs of them came."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

RECENT = 32
"""Steps over which a median is taken."""

ENOUGH = 3
"""Signs without which their distance is anybody's guess: the first steps are slow, each in its own
way."""

ENOUGH_STEPLESS = 8
"""The same of a run that makes no steps: what several workers tell, each as it gets there, comes
now close together and now far apart."""

MOST_USUAL = 6.0
"""Times the median that one silence of those may be without being something else: a pause."""

BURST = 0.05
"""Seconds within which lines were read at once, so that their distance means nothing."""

PAUSE = 2.0
"""Times the usual silence from which on one is a pause: something was done that no step needs."""

REMEMBERED = 4096
"""Silences after which a pause is forgotten: some evaluate once in a thousand steps, and what
happened once, a suspended machine, must not count for ever."""

MOST_PAUSES = 8
"""Pauses that are kept, the longest."""

ONE_SIGN = 1.0
"""Seconds within which signs are one: a step may leave several, and several lines."""


class Mark(NamedTuple):
    """The run came to a step (unix seconds; when that was read, where it is not `dated`)."""

    step: int
    timestamp: float
    dated: bool = True
    paused: float = 0.0
    """Seconds that the run had done something else until then."""


class Sign(NamedTuple):
    """Something showed that the run goes forward; as for a mark, but for the step."""

    timestamp: float
    dated: bool = True
    paused: float = 0.0


class Pause(NamedTuple):
    """A silence that ended well, by its number among them all, and its seconds with a step."""

    number: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds, the last ones last.

    A step and a sign of it are two things: a run that tells every tenth step is silent for ten
    steps, and is not stalled then. While the run saves or evaluates, it does neither.
    """

    durations: tuple[float, ...] = ()
    """Of a step each."""
    distances: tuple[float, ...] = ()
    """From one sign to the next."""
    told: bool = False
    """Whether the run says itself what a step takes."""
    silences: int = 0
    """Silences that ended well since it has been known what is usual."""
    pauses: tuple[Pause, ...] = ()
    """The longest of these of late, each longer than all after it."""

    @property
    def last(self) -> float | None:
        """What the last step took."""
        return self.durations[-1] if self.durations else None

    @property
    def typical(self) -> float | None:
        """What a step usually takes."""
        return median(self.durations) if self.durations else None

    @property
    def usual_silence(self) -> float | None:
        """How long nothing is usually heard; None while too little was heard to tell."""
        if len(self.distances) < (ENOUGH if self.durations else ENOUGH_STEPLESS):
            return None
        return max(median(self.distances), self.typical or 0.0)

    @property
    def longest_usual(self) -> float | None:
        """How long a silence is at most that is nothing special; None while it is not known.

        A step takes what it usually takes. Where there are none the longest of late counts: trials
        that end at random have silences of five times their median every few dozen.
        """
        usual = self.usual_silence
        if usual is None or self.durations:
            return usual
        return min(max(self.distances), MOST_USUAL * usual)

    @property
    def longest_pause(self) -> float:
        """The longest silence of late that ended well, where that was no usual one; else nought."""
        return self.pauses[0].seconds if self.pauses else 0.0

    def after_step(self, previous: Mark | None, mark: Mark, seconds: float | None) -> Pace:
        """The pace with `mark`, which came after `previous` in the same life of the run.

        `seconds` is what the step took as the run says itself.
        """
        if seconds is not None:
            pace = replace(self, durations=_with(self.durations, seconds), told=True)
            if previous is None or (previous.dated and mark.dated):
                return pace
            # What was read in one go is no distance, but so many steps of that length are.
            silence = seconds * (mark.step - previous.step)
            return replace(pace, distances=_with(self.distances, silence))
        if self.told or previous is None or not (previous.dated and mark.dated):
            return self
        each = _between(previous, mark) / (mark.step - previous.step)
        return replace(self, durations=_with(self.durations, each))

    def after_burst(self, previous: Mark | None, mark: Mark, seconds: float | None) -> Pace:
        """The pace when the last mark turned out to stand for more steps, up to that of `mark`.

        So a log that is flushed once in a hundred steps tells their true duration.
        """
        if seconds is None and (self.told or previous is None or not previous.dated):
            return self
        return replace(self, durations=self.durations[:-1]).after_step(previous, mark, seconds)

    def after_sign(self, previous: Sign, sign: Sign) -> Pace:
        """The pace with `sign`, which came after `previous`."""
        return replace(self, distances=_with(self.distances, _between(previous, sign)))

    def after_silence(self, seconds: float, *, stepless: bool = False) -> Pace:
        """The pace when the run was heard again after so long, and nobody had restarted it.

        The first silences are passed over: they hold what is loaded, compiled and captured. One
        that no step ended, but a save that began, is `stepless`: the next may hold a step besides.
        """
        usual = self.usual_silence
        if usual is None:
            return self
        if stepless:
            seconds += usual
        number = self.silences + 1
        pauses = tuple(
            one for one in self.pauses if one.seconds > seconds and number - one.number < REMEMBERED
        )
        if seconds > PAUSE * usual:
            pauses = (*pauses, Pause(number, seconds))[:MOST_PAUSES]
        return replace(self, silences=number, pauses=pauses)


def _between(one: Mark | Sign, other: Mark | Sign) -> float:
    return max(0.0, other.timestamp - one.timestamp - (other.paused - one.paused))


def _with(values: tuple[float, ...], value: float) -> tuple[float, ...]:
    return (*values, value)[-RECENT:]
