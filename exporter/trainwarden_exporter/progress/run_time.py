"""Computes in which state each second of a run was spent. Pure.

A second counts once its state is known. A pause between two steps may turn out to be a stall, so
the time since the last event counts only with the next event, or once a limit has passed. The
totals are therefore at most one limit behind the clock, and never decrease.

What a pause was shows its end: if a restart ends it, it was a stall from the stall limit on. If a
step ends it, it may have been an evaluation that nothing announces, so it was a stall only where
silence alone would have justified a restart.

An interruption begins with the last new step before the run was down or stalled, and ends with the
next new step: what the run repeats after a resume belongs to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.processes.stacks.model import Movement
from trainwarden_exporter.progress.stall_limits import SilenceLimits
from trainwarden_exporter.progress.state import CHECKPOINT, RunProgress

SETTLE_SECONDS = 15.0
"""Seconds after which a log line has surely been read: only older time counts without an event."""

GAP_SECONDS = 60.0
"""Seconds between two looks from which on nobody has looked."""

CATCH_UP_SECONDS = 30.0
"""Seconds after a gap in which lines that were written during it are read."""


FILE_SECONDS = 2.0
"""Seconds by which the line of a step may be read after the first file of the save that follows."""


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


_OF_PHASE = {
    Phase.STARTING: RunState.STARTING,
    Phase.SAVING: RunState.SAVING,
    Phase.EVALUATING: RunState.EVALUATING,
    Phase.UPDATING_WEIGHTS: RunState.UPDATING_WEIGHTS,
    Phase.WAITING_FOR_ROLLOUTS: RunState.WAITING_FOR_ROLLOUTS,
    Phase.FINISHED: RunState.FINISHED,
}


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
            held_from=shift(self.held_from),
            held_until=shift(self.held_until),
            new_step_at=shift(self.new_step_at),
            interruption=None if self.interruption is None else self.interruption.shifted(seconds),
        )


def in_hindsight(state: RunProgress) -> RunProgress:
    """Returns what the run was at as its files show it now, which the state of the alerts is not.

    Not every log tells the end of a save. Its checkpoint does, and what follows may take long.
    """
    if state.phase is not Phase.SAVING or (began := state.phase_began_at) is None:
        return state
    number = state.attempt.number
    saved = max(
        (
            report.timestamp
            for source, report in state.reports.items()
            if report.attempt == number and source.startswith(CHECKPOINT)
        ),
        default=0.0,
    )
    if saved < began:
        return state
    return replace(state, phase=Phase.TRAINING, phase_began_at=saved, last_sign_at=saved)


def count_event(
    time: RunTime, old: RunProgress, new: RunProgress, at: float, limits: SilenceLimits
) -> RunTime:
    """Returns `time` after an event at `at` that changed `old`, with these limits, to `new`."""
    same = new.steps == old.steps and new.last_sign == old.last_sign
    if same and new.phase is old.phase and new.attempt == old.attempt:
        return time
    started = new.attempt.number != old.attempt.number
    limit = limits.restarted if started else limits.alone
    if started and not time.down and at - time.looked_at > GAP_SECONDS:
        # It died while nobody looked.
        time = _counted_work(time, old, limits.restarted).counted(RunState.UNKNOWN, at)
    if time.down:
        time = replace(time.counted(RunState.DOWN, at), down=not started)
    else:
        if time.gap is not None and at >= time.gap[1] and not _spans(time, at, limit):
            time = _counted_gap(time, old, limit)
        spent = _spent(time, old, new, at - time.counted_until, limit)
        if spent is RunState.SAVING and new.phase is Phase.TRAINING and new.steps != old.steps:
            # Nothing reported the end of the save, and the step after it took its time, too.
            time = time.counted(spent, at - (old.timing.typical or 0.0))
            spent = _spent(time, replace(old, phase=Phase.TRAINING), new, 0.0, None)
        unseen = at - max(time.looked_at, time.counted_until) > GAP_SECONDS
        if spent is RunState.STALLED and unseen:
            spent = RunState.UNKNOWN  # it may have been down, too
        time = time.counted(spent, at)
        if started:
            # It died and was started again between two looks.
            time = time.interrupted()
    time = _count_steps(time, old, new, at)
    if new.finished and time.interruption is not None and time.interruption.end is None:
        time = replace(time, interruption=replace(time.interruption, end=at))
    return time


def count_save(
    time: RunTime, state: RunProgress, began: float, ended: float, limits: SilenceLimits
) -> RunTime:
    """Returns `time` after a save of which only the files are known, from when to when.

    Nothing is counted twice, and no save beside which the run made steps.
    """
    sign = state.last_sign_at
    if state.phase is not Phase.TRAINING or sign is None or time.down or time.counted_until > ended:
        return time
    if sign > began + FILE_SECONDS or time.counted_until > began + FILE_SECONDS:
        return time
    saving = replace(state, phase=Phase.SAVING)
    time = count_event(time, state, saving, began, limits)
    return count_event(time, saving, state, ended, SilenceLimits(None, None))


class RunLook(NamedTuple):
    """What a look at a run shows. Unix seconds."""

    alive: bool = True
    """Whether its trainer lives; of a search, whether any of its workers does."""
    finished: bool = False
    """Whether all workers of a search have ended by themselves."""
    held: bool = False
    """Whether a hold keeps the remediator from healing it."""
    movement: Movement = Movement.UNKNOWN
    """What its processes do since its last sign of progress."""
    sign_at: float | None = None
    """Last sign of progress from a running trainer."""


def count_look(
    time: RunTime, state: RunProgress, now: float, look: RunLook, limits: SilenceLimits
) -> RunTime:
    """Returns `time` after `look` at `now`, with the limits in force.

    A run that goes on without a trainer is not down: its trainer is not found.
    """
    time, alive, sign_at = time.with_hold(now, held=look.held), look.alive, look.sign_at
    lived_at = now if alive else time.lived_at
    if sign_at is not None and lived_at is not None and sign_at > lived_at + SETTLE_SECONDS:
        alive = True
    if now - time.looked_at > GAP_SECONDS and (alive or not time.down):
        time = replace(time, gap=(time.looked_at, now))
    settled = now - SETTLE_SECONDS
    if time.gap is not None:
        if now < time.gap[1] + CATCH_UP_SECONDS:
            return replace(time, looked_at=now, lived_at=lived_at)
        time = replace(_counted_gap(time, state, limits.alone), gap=None)
    if alive and time.down:
        time = time.counted(RunState.DOWN, time.looked_at)
    if not alive and not state.finished:
        if not time.down:
            time = _counted_work(time, state, limits.restarted)
        time = time.counted(RunState.DOWN, settled)
    elif state.phase is None or _is_ahead(state, now):
        time = time.counted(RunState.UNKNOWN, settled)
    elif (
        stalled := _is_stalled(time, state, now, limits.alone)
    ) or state.phase is not Phase.TRAINING:
        time = time.counted(RunState.STALLED if stalled else _OF_PHASE[state.phase], settled)
    down = not alive and not state.finished
    return replace(time, looked_at=now, lived_at=lived_at, down=down)


def count_boot(time: RunTime, state: RunProgress, booted: float, limits: SilenceLimits) -> RunTime:
    """Returns `time` after a boot of the host at `booted`, which nothing of the run survived.

    The exporter went down with it, so the last look was the end of the trainer, too.
    """
    if time.looked_at >= booted or time.down or state.finished:
        return time
    return replace(_counted_work(time, state, limits.restarted), down=True)


def _counted_work(time: RunTime, state: RunProgress, limit: float | None) -> RunTime:
    """Returns `time` until the last look: what died after it was until then at its work."""
    silence = time.looked_at - time.counted_until
    return time.counted(_spent(time, state, state, silence, limit), time.looked_at)


def _counted_gap(time: RunTime, state: RunProgress, limit: float | None) -> RunTime:
    """Returns `time` with a time in which nobody looked: until then the run was at its work."""
    start, end = time.gap or (time.looked_at, time.looked_at)
    spent = _spent(time, state, state, start - time.counted_until, limit)
    return time.counted(spent, start).counted(RunState.UNKNOWN, end)


def _count_steps(time: RunTime, old: RunProgress, new: RunProgress, at: float) -> RunTime:
    last = new.steps[-1] if new.steps else None
    same = old.attempt.number == new.attempt.number
    if last is None or not last.dated or (same and old.steps and old.steps[-1].step >= last.step):
        return time
    before = old.step if same else new.attempt.origin
    if before is None:
        # The first step that is seen says nothing about those before it.
        before = last.step - 1
    known = _highest_before(time, new)
    redone = 0 if known is None else max(0, min(last.step, known) - before)
    made = max(0, last.step - before)
    if not (same and old.steps) and new.attempt.resumed:
        lost = max(0, (new.attempt.previous_step or 0) - before)
        time = replace(time, steps_lost=time.steps_lost + lost)
    return time.with_steps(last.step, made, redone, at)


def _highest_before(time: RunTime, state: RunProgress) -> int | None:
    """Returns the highest step of any attempt, if the run has resumed; else None."""
    if not state.attempt.resumed:
        return None
    known = [one for one in (state.attempt.previous_step, time.highest_step) if one is not None]
    return max(known, default=None)


def _spans(time: RunTime, at: float, limit: float | None) -> bool:
    """Whether one step explains the whole time until `at`."""
    return limit is not None and at - time.counted_until <= limit


def _is_ahead(state: RunProgress, now: float) -> bool:
    """Whether the last sign is of a time to come, because the clock was set back."""
    return state.last_sign_at is not None and state.last_sign_at > now + GAP_SECONDS


def _is_stalled(time: RunTime, state: RunProgress, now: float, limit: float | None) -> bool:
    if limit is None or state.last_sign_at is None or state.finished:
        return False
    return now - max(state.last_sign_at, time.clock_set_at) > limit


def _spent(
    time: RunTime, old: RunProgress, new: RunProgress, seconds: float, limit: float | None
) -> RunState:
    """Returns the state of the last `seconds` of `old`, which ended with `new`."""
    if old.phase is None:
        return RunState.UNKNOWN
    if limit is not None and seconds > limit and not old.finished:
        return RunState.STALLED
    if old.phase is not Phase.TRAINING:
        return _OF_PHASE[old.phase]
    # A search makes no steps, but its trials are signs of progress.
    if not old.steps and old.last_sign is None:
        return RunState.FIRST_STEP
    known, marks = _highest_before(time, old), new.steps or old.steps
    if known is None or not marks:
        return RunState.TRAINING
    at_work = marks[-1].step + (marks == old.steps)
    return RunState.REDOING if at_work <= known else RunState.TRAINING
