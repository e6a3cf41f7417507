"""Computes in which state each second of a run was spent. Pure.

A second counts once its state is known. A pause between two steps may turn out to be a stall, so
the time since the last event counts only with the next event, or once the stall limit has passed.
The totals are therefore at most one stall limit behind the clock, and never decrease.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.progress.state import RunProgress

SETTLE_SECONDS = 15.0
"""Seconds after which a log line has surely been read: only older time counts without an event."""

GAP_SECONDS = 60.0
"""Seconds between two looks from which on nobody has looked."""

CATCH_UP_SECONDS = 30.0
"""Seconds after a gap in which lines that were written during it are read."""


KEPT_SECONDS = 7 * 86400.0
"""Seconds for which the time of a run that is not configured any more is kept."""

MAX_KEPT = 200
"""Number of such runs; the most recently watched are kept."""


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
    gap_end: float | None = None
    """End of a time in which nobody looked, while its lines are still being read."""
    steps_made: int = 0
    steps_redone: int = 0

    def counted(self, state: RunState, until: float) -> RunTime:
        """Returns this with the time until `until` in `state`; time never counts twice."""
        more = until - self.counted_until
        if more <= 0:
            return self
        seconds = {**self.seconds, state: self.seconds.get(state, 0.0) + more}
        return replace(self, seconds=seconds, counted_until=until)

    def shifted(self, seconds: float, now: float) -> RunTime:
        """Returns this on a clock that was set by `seconds`, to `now`."""
        return replace(
            self,
            clock_set_at=now,
            counted_until=self.counted_until + seconds,
            looked_at=self.looked_at + seconds,
            gap_end=None if self.gap_end is None else self.gap_end + seconds,
        )


def retain(times: Mapping[str, RunTime], runs: Collection[str], now: float) -> dict[str, RunTime]:
    """Returns the times of `runs`, and those of other runs that may be configured again.

    A run that `trainwarden run` announces is not configured while it is stopped or starts. It was
    not watched meanwhile, so that time is unknown and not down.
    """
    others = [run for run, time in times.items() if now - time.looked_at < KEPT_SECONDS]
    newest = sorted(others, key=lambda run: times[run].looked_at)[-MAX_KEPT:]
    kept = {run: replace(times[run], down=False) for run in newest}
    return kept | {run: times[run] for run in runs if run in times}


def count_event(
    time: RunTime, old: RunProgress, new: RunProgress, at: float, limit: float | None
) -> RunTime:
    """Returns `time` after an event at `at` that changed `old` to `new`.

    `limit` is the stall limit (seconds) of `old`.
    """
    if new.steps == old.steps and new.phase is old.phase and new.attempt == old.attempt:
        return time
    time = _count_steps(time, old, new)
    if time.down:
        started = new.attempt.number != old.attempt.number
        return replace(time.counted(RunState.DOWN, at), down=not started)
    if time.gap_end is not None and at >= time.gap_end and not _spans(time, at, limit):
        time = time.counted(RunState.UNKNOWN, time.gap_end)
    return time.counted(_spent(old, new, at - time.counted_until, limit), at)


def count_look(
    time: RunTime, state: RunProgress, now: float, *, alive: bool, limit: float | None
) -> RunTime:
    """Returns `time` after a look at the run at `now`.

    `alive` is whether its trainer lives, `limit` the stall limit (seconds) in force.
    """
    if now - time.looked_at > GAP_SECONDS:
        time = replace(time, gap_end=now)
    settled = now - SETTLE_SECONDS
    if time.gap_end is not None:
        if now < time.gap_end + CATCH_UP_SECONDS:
            return replace(time, looked_at=now)
        time = replace(time.counted(RunState.UNKNOWN, time.gap_end), gap_end=None)
    if alive and time.down:
        time = time.counted(RunState.DOWN, time.looked_at)
    if not alive and not state.finished:
        if not time.down:
            # It died between two looks: what it did until then counts as the work it was at.
            silence = time.looked_at - time.counted_until
            time = time.counted(_spent(state, state, silence, limit), time.looked_at)
        time = time.counted(RunState.DOWN, settled)
    elif state.phase is None or _is_ahead(state, now):
        time = time.counted(RunState.UNKNOWN, settled)
    elif (stalled := _is_stalled(time, state, now, limit)) or state.phase is not Phase.TRAINING:
        time = time.counted(RunState.STALLED if stalled else _OF_PHASE[state.phase], settled)
    return replace(time, looked_at=now, down=not alive and not state.finished)


def _count_steps(time: RunTime, old: RunProgress, new: RunProgress) -> RunTime:
    last = new.steps[-1] if new.steps else None
    if last is None or not last.dated or (old.steps and old.steps[-1].step >= last.step):
        return time
    same = old.attempt.number == new.attempt.number
    before = old.step if same else new.attempt.origin
    if before is None:
        # The first step that is seen says nothing about those before it.
        before = last.step - 1
    known = new.attempt.previous_step if new.attempt.resumed else None
    redone = 0 if known is None else max(0, min(last.step, known) - before)
    made = max(0, last.step - before)
    return replace(time, steps_made=time.steps_made + made, steps_redone=time.steps_redone + redone)


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


def _spent(old: RunProgress, new: RunProgress, seconds: float, limit: float | None) -> RunState:
    """Returns the state of the last `seconds` of `old`, which ended with `new`."""
    if old.phase is None:
        return RunState.UNKNOWN
    if limit is not None and seconds > limit and not old.finished:
        return RunState.STALLED
    if old.phase is not Phase.TRAINING:
        return _OF_PHASE[old.phase]
    if not old.steps:
        return RunState.FIRST_STEP
    known = old.attempt.previous_step if old.attempt.resumed else None
    step = new.steps[-1].step if new.steps else old.steps[-1].step
    return RunState.REDOING if known is not None and step <= known else RunState.TRAINING
