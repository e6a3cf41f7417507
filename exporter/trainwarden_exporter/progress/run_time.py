"""How the seconds of a run are divided into states, and its interruptions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum


class RunState(StrEnum):
    """The state of a run. Each second of a run belongs to exactly one."""

    STARTING = "starting"
    FIRST_STEP = "first_step"
    TRAINING = "training"
    WAITING_FOR_ROLLOUTS = "waiting_for_rollouts"
    UPDATING_WEIGHTS = "updating_weights"
    EVALUATING = "evaluating"
    SAVING = "saving"
    STALLED = "stalled"
    REDOING = "redoing"
    DOWN = "down"
    HELD = "held"
    FINISHED = "finished"
    UNKNOWN = "unknown"


_LOST = frozenset({RunState.DOWN, RunState.STALLED})
"""States without work; such time is held while a hold keeps the remediator from healing it."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """Time between two new steps in which the run was down or stalled. Unix seconds."""

    start: float
    """Time of the last new step before."""
    end: float | None = None
    """Time of the next new step; None while it lasts."""
    steps_redone: int = 0
    """Steps that were lost and made again in this time."""

    def shifted(self, seconds: float) -> Interruption:
        """Returns this on a clock that was set by `seconds`."""
        end = None if self.end is None else self.end + seconds
        return replace(self, start=self.start + seconds, end=end)


@dataclass(frozen=True, slots=True)
class RunTime:
    """Seconds of one run by state, and the steps it made. Times are Unix seconds."""

    counted_until: float
    """Every second from the first look to here belongs to one state."""
    looked_at: float
    """Time of the last look."""
    seconds: Mapping[RunState, float] = field(default_factory=dict)
    down: bool = False
    """Whether the trainer was dead at the last look."""
    clock_set_at: float = 0.0
    """Time at which the clock was last set: the age of an earlier sign is not known."""
    gap: tuple[float, float] | None = None
    """A time in which nobody looked, while its lines are still being read."""
    lived_at: float | None = None
    """Time of the last look at which the trainer lived."""
    unserved_since: float | None = None
    """Since when a server of the run is down."""
    steps_made: int = 0
    steps_redone: int = 0
    steps_lost: int = 0
    """Steps that were made after the step from which the run continued later."""
    highest_step: int | None = None
    """The highest step of all attempts; None before the first."""
    held_from: float | None = None
    """Start of the last hold on the run."""
    held_until: float | None = None
    """Its end; None while it is in force."""
    new_step_at: float | None = None
    """Time of the last step that was not made before."""
    interruption: Interruption | None = None
    """The last one."""
    interruptions: int = 0
    paused_seconds: float = 0.0
    """The part of the training in which no step was made for longer than a slow step takes."""

    def counted(self, state: RunState, until: float) -> RunTime:
        """Returns this with the time until `until` in `state`; time never counts twice."""
        more = until - self.counted_until
        if more <= 0:
            return self
        held = self._held_before(until) if state in _LOST else 0.0
        seconds = {**self.seconds, state: self.seconds.get(state, 0.0) + more - held}
        if held:
            seconds[RunState.HELD] = seconds.get(RunState.HELD, 0.0) + held
        counted = replace(self, seconds=seconds, counted_until=until)
        return counted.interrupted() if state in _LOST else counted

    def _held_before(self, until: float) -> float:
        """Returns for how much of the time that is not counted yet the run is held."""
        if self.held_from is None:
            return 0.0
        end = until if self.held_until is None else min(until, self.held_until)
        return max(0.0, end - max(self.held_from, self.counted_until))

    def interrupted(self) -> RunTime:
        """Returns this with an interruption since the last new step, unless one lasts."""
        last, start = self.interruption, self.new_step_at
        if start is None or (last is not None and last.end is None):
            return self
        return replace(self, interruption=Interruption(start), interruptions=self.interruptions + 1)

    def with_hold(self, now: float, *, held: bool) -> RunTime:
        """Returns this with a hold on the run that is in force at `now`, or not."""
        in_force = self.held_from is not None and self.held_until is None
        if held == in_force:
            return self
        if held:
            return replace(self, held_from=now, held_until=None)
        return replace(self, held_until=now)

    def with_steps(self, step: int, made: int, redone: int, at: float) -> RunTime:
        """Returns this after the run made steps, some of them again, the last, `step`, at `at`."""
        last = self.interruption
        if last is not None and last.end is None:
            last = replace(
                last,
                steps_redone=last.steps_redone + redone,
                end=at if made > redone else None,
            )
        return replace(
            self,
            steps_made=self.steps_made + made,
            steps_redone=self.steps_redone + redone,
            highest_step=max(step, self.highest_step or 0),
            interruption=last,
            new_step_at=at if made > redone else self.new_step_at,
        )

    def with_unseen_step(self, step: int, at: float) -> RunTime:
        """Returns this after `step` was made while nobody looked, at `at` at the latest."""
        if self.new_step_at is None or step <= (self.highest_step or 0):
            return self
        return replace(self, new_step_at=max(at, self.new_step_at))

    def shifted(self, seconds: float, now: float) -> RunTime:
        """Returns this on a clock that was set by `seconds`, to `now`."""

        def shift(moment: float | None) -> float | None:
            return None if moment is None else moment + seconds

        gap = None if self.gap is None else (self.gap[0] + seconds, self.gap[1] + seconds)

        return replace(
            self,
            clock_set_at=now,
            counted_until=self.counted_until + seconds,
            looked_at=self.looked_at + seconds,
            gap=gap,
            lived_at=shift(self.lived_at),
            unserved_since=shift(self.unserved_since),
            held_from=shift(self.held_from),
            held_until=shift(self.held_until),
            new_step_at=shift(self.new_step_at),
            interruption=None if self.interruption is None else self.interruption.shifted(seconds),
        )
