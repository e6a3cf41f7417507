"""Computes in which state each second of a run was spent. Pure.

Time is counted in stretches. A stretch begins with the last event and is pending until something
shows what it was: the next event (a step, a line, a start, the files of a save), a look that finds
the run down or in a phase, or a limit that has passed. So the totals may know more than the alerts
knew at the time, and never decrease; a start and a silence of unknown pace are pending without a
limit, unless stacks show them stuck.

What a pause was shows its end: if a restart ends it, it was a stall from the stall limit on. If a
step ends it, it may have been an evaluation that nothing announces, so it was a stall only where
silence alone would have justified a restart, later while processes or servers work; and while a
server was down, if that was longer than slow steps. A run that shows nothing but its checkpoints
was at work before each of them; when its start was over, and what it did after the last one before
its end, is unknown. When a save was shows its checkpoint, whose files have
times, whatever the log tells; an alert, which cannot wait for these, takes a save to last until the
run goes on.

An interruption begins with the last new step before the run was down or stalled, and ends with the
next new step: what the run repeats after a resume belongs to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.processes.stacks.model import Movement
from trainwarden_exporter.progress.run_time import RunState, RunTime
from trainwarden_exporter.progress.stall_limits import SilenceLimits
from trainwarden_exporter.progress.state import RunProgress

SETTLE_SECONDS = 15.0
"""Seconds after which a log line has surely been read: only older time counts without an event."""

SAVED_SECONDS = 60.0
"""The same for the files of a checkpoint, which must be unchanged for a while to be complete."""

GAP_SECONDS = 60.0
"""Seconds between two looks from which on nobody has looked."""

CATCH_UP_SECONDS = 30.0
"""Seconds after a gap in which lines that were written during it are read."""


FILE_SECONDS = 2.0
"""Seconds by which the line of a step may be read after the first file of the save that follows."""

_OF_PHASE = {
    Phase.STARTING: RunState.STARTING,
    Phase.SAVING: RunState.SAVING,
    Phase.EVALUATING: RunState.EVALUATING,
    Phase.UPDATING_WEIGHTS: RunState.UPDATING_WEIGHTS,
    Phase.WAITING_FOR_ROLLOUTS: RunState.WAITING_FOR_ROLLOUTS,
    Phase.FINISHED: RunState.FINISHED,
}


def _settled(
    time: RunTime,
    old: RunProgress,
    new: RunProgress,
    at: float,
    limit: float | None,
    *,
    unexplained: float | None,
) -> RunTime:
    """Returns `time` with the stretch that ends at `at`, where the run went on from `old` to `new`.

    That event shows what the stretch was.
    """
    silence = _silence(time, old, at)
    spent = _spent(time, old, new, silence, limit)
    if spent is RunState.TRAINING and unexplained is not None and silence > unexplained:
        # It may have been an evaluation that nothing announces, or a hang that has ended.
        time = replace(time, paused_seconds=time.paused_seconds + max(0.0, at - time.counted_until))
    if spent is RunState.SAVING and new.last_sign != old.last_sign:
        # Its end has not been seen yet, and the step after it took its time, too.
        time = time.counted(spent, at - (old.timing.typical or 0.0))
        spent = _spent(time, replace(old, phase=Phase.TRAINING), new, 0.0, None)
    if spent is RunState.STALLED and at - max(time.looked_at, time.counted_until) > GAP_SECONDS:
        spent = RunState.UNKNOWN  # nobody looked: it may have been down, too
    return time.counted(spent, at)


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
        # A step after the look shows a start that is not known yet.
        unknown_start = not started and new.steps != old.steps
        still_down = not started and (not unknown_start or at <= time.looked_at)
        last, count = time.interruption, time.interruptions
        time = replace(time.counted(RunState.DOWN, at), down=still_down)
        if unknown_start:  # else each of its steps would be the start of an interruption
            time = replace(time, interruption=last, interruptions=count)
    else:
        if time.gap is not None and at >= time.gap[1] and not _spans(time, at, limit):
            time = _counted_gap(time, old, limit)
        time = _settled(time, old, new, at, limit, unexplained=limits.unexplained)
    if started and not new.attempt.previous_recorded:  # else it was not observed before
        time = _without_early_steps(time, old, new)
        if (time.new_step_at or 0.0) < new.attempt.began:  # else it is the start of its first steps
            time = time.interrupted()  # perhaps it died and was started again between two looks
        elif old.attempt.started and not _interrupted_since(time, new.attempt.began):
            # It has made more steps than are kept: its start stands for the last step before it.
            time = replace(time, new_step_at=new.attempt.began).interrupted()
    time = _count_steps(time, old, new, at)
    if new.finished and time.interruption is not None and time.interruption.end is None:
        time = replace(time, interruption=replace(time.interruption, end=at))
    return time


def count_save(
    time: RunTime, state: RunProgress, began: float, ended: float, limits: SilenceLimits
) -> RunTime:
    """Returns `time` after a save that only its files show, from `began` to `ended`.

    No time counts twice, and a save beside which the run made steps counts as training. If it is
    the first sign of an attempt, nobody knows when the start was over.
    """
    sign, starting = state.last_sign_at, state.phase is Phase.STARTING
    if not (starting or state.phase is Phase.TRAINING) or sign is None or time.down:
        return time
    if max(sign, time.counted_until) > began + FILE_SECONDS:
        return time
    if starting:
        time = time.counted(RunState.UNKNOWN, began)
    saving = replace(state, phase=Phase.SAVING)
    time = count_event(time, state, saving, began, limits)
    return count_event(time, saving, state, ended, SilenceLimits(None, None))


class ServerSigns(NamedTuple):
    """What the inference servers of a run show. Unix seconds."""

    down_since: float | None = None
    """Since when one of them is out of service, and not on purpose."""
    working: bool = False
    """Whether one of them does work since the last sign of progress."""


class RunLook(NamedTuple):
    """What a look at a run shows. Unix seconds."""

    alive: bool = True
    """Whether its trainer lives; of a search, whether any of its workers does."""
    finished: bool = False
    """Whether all workers of a search have ended by themselves."""
    held: bool = False
    """Whether a hold keeps the remediator from healing it."""
    movement: Movement = Movement.UNKNOWN
    """What its processes and its servers do since its last sign of progress."""
    unserved_since: float | None = None
    """Since when a server of it is out of service."""
    sign_at: float | None = None
    """Last sign of progress from a running trainer."""


def count_look(
    time: RunTime, state: RunProgress, now: float, look: RunLook, limits: SilenceLimits
) -> RunTime:
    """Returns `time` after `look` at `now`, with the limits in force.

    A run that goes on without a trainer is not down: its trainer is not found.
    """
    time, alive, sign_at = time.with_hold(now, held=look.held), look.alive, look.sign_at
    if look.finished:
        if time.lived_at is not None and not (time.down or state.finished):
            # Its last trial ended without a line.
            silence = time.lived_at - time.counted_until
            time = time.counted(_spent(time, state, state, silence, limits.alone), time.lived_at)
        state = replace(state, phase=Phase.FINISHED)
    lived_at = now if alive and not look.finished else time.lived_at
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
    else:
        time = _counted_unserved(time, state, now, look.unserved_since, limits.unserved)
        time = _counted_so_far(time, state, now, limits.alone)
    down = not alive and not state.finished
    return replace(time, looked_at=now, lived_at=lived_at, down=down)


def _counted_unserved(
    time: RunTime, state: RunProgress, now: float, since: float | None, limit: float | None
) -> RunTime:
    """Returns `time` with the stall of a run without its server; a short one is a slow step."""
    known = time.unserved_since
    if known is not None and state.phase is Phase.TRAINING:
        began = max(known, state.last_sign_at or 0.0)
        if limit is not None and now - began > limit:
            working = _spent(time, state, state, 0.0, None)
            end = now if since is None else now - SETTLE_SECONDS
            time = time.counted(working, began).counted(RunState.STALLED, end)
    if since is not None and known is not None:
        since = min(since, known)  # it starts meanwhile, which is another reason
    return time if since == known else replace(time, unserved_since=since)


def _counted_so_far(time: RunTime, state: RunProgress, now: float, limit: float | None) -> RunTime:
    """Returns `time` with what is known before anything ends it: a phase, or a stall."""
    settled = now - SETTLE_SECONDS
    if state.phase is None or _is_ahead(state, now):
        return time.counted(RunState.UNKNOWN, settled)
    if _is_stalled(time, state, now, limit):
        return time.counted(RunState.STALLED, settled)
    if state.phase in (Phase.STARTING, Phase.TRAINING):
        return time
    saving = state.phase is Phase.SAVING
    return time.counted(_OF_PHASE[state.phase], now - SAVED_SECONDS if saving else settled)


def count_boot(time: RunTime, state: RunProgress, booted: float, limits: SilenceLimits) -> RunTime:
    """Returns `time` after a boot of the host at `booted`, which nothing of the run survived.

    The exporter went down with it, so the last look was the end of the trainer, too.
    """
    if time.looked_at >= booted or time.down or state.finished:
        return time
    return replace(_counted_work(time, state, limits.restarted), down=True)


def _counted_work(time: RunTime, state: RunProgress, limit: float | None) -> RunTime:
    """Returns `time` until the last look: what died after it was until then at its work.

    Of a run that shows nothing but its checkpoints, only the next one would have shown that.
    """
    silence = _silence(time, state, time.looked_at)
    spent = _spent(time, state, state, silence, limit)
    if spent is RunState.TRAINING and _shows_records_alone(state):
        spent = RunState.UNKNOWN
    return time.counted(spent, time.looked_at)


def _counted_gap(time: RunTime, state: RunProgress, limit: float | None) -> RunTime:
    """Returns `time` with a time in which nobody looked: until then the run was at its work."""
    start, end = time.gap or (time.looked_at, time.looked_at)
    spent = _spent(time, state, state, _silence(time, state, start), limit)
    return time.counted(spent, start).counted(RunState.UNKNOWN, end)


def _interrupted_since(time: RunTime, moment: float) -> bool:
    """Whether an interruption lasts, or has ended since `moment`."""
    last = time.interruption
    return last is not None and (last.end is None or last.end >= moment)


def _without_early_steps(time: RunTime, old: RunProgress, new: RunProgress) -> RunTime:
    """Returns `time` without the steps of an attempt that were read before its start was known."""
    early = [mark for mark in old.steps if mark in new.steps]
    before = [mark for mark in old.steps if mark.timestamp < new.attempt.began]
    if not (early and before):
        return time
    highest, last = time.highest_step, time.interruption
    if last is not None and last.end is not None and last.end >= new.attempt.began:
        last = replace(last, end=None)  # one of these steps ended it
    return replace(
        time,
        interruption=last,
        steps_made=time.steps_made - (early[-1].step - before[-1].step),
        highest_step=new.attempt.previous_step if highest == early[-1].step else highest,
        new_step_at=before[-1].timestamp,
    )


def _count_steps(time: RunTime, old: RunProgress, new: RunProgress, at: float) -> RunTime:
    last = new.steps[-1] if new.steps else None
    same = old.attempt.number == new.attempt.number
    if last is None or (same and old.steps and old.steps[-1].step >= last.step):
        return time
    if not last.dated:
        return time.with_unseen_step(last.step, last.timestamp)
    before = old.step if same else new.attempt.origin
    if before is not None and same and old.steps and not old.steps[-1].dated:
        before = min(before, time.highest_step or before)  # with the steps that nobody saw it make
    if before is None:
        # The first step that is seen says nothing about those before it.
        first = new.attempt.first_step if same and old.attempt.first_step is None else None
        before = (first or last.step) - 1
    known = _highest_before(time, new)
    redone = 0 if known is None else max(0, min(last.step, known) - before)
    made = max(0, last.step - before)
    if not (same and old.steps) and new.attempt.resumed:
        lost = max(0, (new.attempt.previous_step or 0) - before)
        time = replace(time, steps_lost=time.steps_lost + lost)
    if not same:  # some of its steps may have been read before its start was known
        at = next((mark.timestamp for mark in new.steps if mark.step > (known or 0)), at)
    return time.with_steps(last.step, made, redone, at)


def _highest_before(time: RunTime, state: RunProgress) -> int | None:
    """Returns the highest step of any attempt, if the run has resumed; else None."""
    if not state.attempt.resumed:
        return None
    known = [one for one in (state.attempt.previous_step, time.highest_step) if one is not None]
    return max(known, default=None)


def _silence(time: RunTime, state: RunProgress, until: float) -> float:
    """Returns for how long the run showed no sign, with what of it counts as a stall already."""
    began, last = time.counted_until, time.interruption
    if last is not None and last.end is None and state.last_sign_at is not None:
        began = min(began, max(state.last_sign_at, time.clock_set_at))
    return until - began


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


def _shows_records_alone(state: RunProgress) -> bool:
    """Whether nothing but complete checkpoints has ever shown that the run makes steps."""
    return bool(state.reports) and not any(one.is_live for one in state.reports.values())


def _spent(
    time: RunTime, old: RunProgress, new: RunProgress, seconds: float, limit: float | None
) -> RunState:
    """Returns the state of the last `seconds` of `old`, which ended with `new`."""
    if old.phase is None:
        return RunState.UNKNOWN
    if limit is not None and seconds > limit and not old.finished:
        return RunState.STALLED
    if old.phase is Phase.STARTING and new.last_sign and _shows_records_alone(new):
        return RunState.UNKNOWN  # when it was over, nobody knows
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
