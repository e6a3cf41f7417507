"""Judges a server: one observation, and what is remembered of those before, make a verdict.

Nothing here looks at the world. What proves a server dead proves it at once; what may be haste or
load has to last; a server that answers is hung only if nothing explains that it gets nothing done
and completions of one token fail, too.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from trainwarden_exporter.inference.reading import Completion, Life, Reading
from trainwarden_exporter.inference.verdict import (
    Limits,
    Mark,
    Observation,
    Reason,
    State,
    Verdict,
)

_FAULTS = {
    Life.SILENT: Reason.TIMEOUT,
    Life.UNREACHABLE: Reason.UNREACHABLE,
    Life.BROKEN: Reason.STATUS,
    Life.BAD: Reason.STATUS,
    Life.NOT_READY: Reason.STATUS,
}
_AT_ONCE = {
    Life.DEAD: Reason.ENGINE_DEAD,
    Life.UNAUTHORIZED: Reason.UNAUTHORIZED,
    Life.LOADING: Reason.STARTING,
}
_WINDOW = 8
_SILENCES = 4
_LONGEST_REST = 4
_PATIENCE = 2


def judge(seen: Observation, state: State, now: float, limits: Limits) -> Verdict:
    """What `seen` means after all that `state` remembers; `now` is of a monotonic clock."""
    state = _of_this_process(seen, state, now)
    if seen.life is Life.REFUSED:
        return Verdict(_refused(seen, state, now, limits))
    if seen.life is not Life.SERVING:
        return Verdict(_failed(seen, state, now, limits))
    return _serving(seen, state, now, limits)


def _of_this_process(seen: Observation, state: State, now: float) -> State:
    """Forget what is about a process that is gone."""
    started = seen.process.started if seen.process else None
    if started is not None and state.process not in (None, started):
        state = State(reason=state.reason, failures=state.failures)
    elif seen.process is None and state.reason is Reason.REFUSED and seen.life is not Life.REFUSED:
        state = replace(state, served=False)
    return replace(
        state,
        process=state.process if started is None else started,
        first=now if state.first is None else state.first,
    )


def _starts(seen: Observation, state: State, now: float, limits: Limits, *, doubt: bool) -> bool:
    """Whether it is starting still: it has not served yet, and its process is young.

    At its grace a person is told, by a rule; only at twice that is it taken for dead, because who
    starts it anew throws away all that it has loaded. Where nobody knows its process, one that was
    not seen to start gets the benefit of `doubt`: who watches may have started only now.
    """
    if state.served:
        return False
    if seen.process is not None:
        started = seen.process.started is not None
        return started and seen.process.age < _PATIENCE * limits.start_grace
    since = state.refused if state.refused is not None or not doubt else state.first
    return since is not None and now - since < limits.start_grace


def _refused(seen: Observation, state: State, now: float, limits: Limits) -> State:
    starts = _starts(seen, replace(state, refused=None), now, limits, doubt=True)
    return State(
        reason=Reason.STARTING if starts else Reason.REFUSED,
        process=state.process,
        first=state.first,
        refused=now,
        served=state.served,
        failures=state.failures + 1,
    )


def _failed(seen: Observation, state: State, now: float, limits: Limits) -> State:
    silences = (*state.silences, seen.life is Life.SILENT)[-_WINDOW:]
    state = replace(state, silences=silences, failures=state.failures + 1, lost=None)
    if seen.life in _AT_ONCE:
        return replace(state, reason=_AT_ONCE[seen.life])
    if _starts(seen, state, now, limits, doubt=seen.life is Life.NOT_READY):
        return replace(state, reason=Reason.STARTING)
    if state.failures >= limits.failures or _falters(state):
        return replace(state, reason=_FAULTS[seen.life])
    return state


def _falters(state: State) -> bool:
    """Whether it is silent time and again, as when one of several API processes is frozen."""
    rounds = state.silences
    recoveries = sum(1 for one, after in pairwise(rounds) if one and not after)
    enough = 1 if state.reason is Reason.TIMEOUT else _SILENCES
    return sum(rounds) >= enough and recoveries > 1


def _serving(seen: Observation, state: State, now: float, limits: Limits) -> Verdict:
    silences = (*state.silences, False)[-_WINDOW:] if any(state.silences) else ()
    state = _beating(seen, replace(state, failures=0, silences=silences), now)
    reading = seen.reading
    excuse = _excuse(seen, state, limits, worked=state.worked == now)
    if reading.unready and _starts(seen, state, now, limits, doubt=excuse is None):
        return Verdict(_excused(state, Reason.STARTING, now))
    if excuse is not None:
        return Verdict(replace(_excused(state, excuse, now), served=True))
    state = _completed(seen, state, now, limits)
    suspects = [rank for rank, mark in state.marks.items() if now - mark.since >= limits.stall]
    if state.worked == now and not suspects:
        state = replace(state, deep_failures=0, held=False)
    state = replace(state, reason=_reason(seen, state, now, limits), served=True)
    suspicious = bool(suspects) or bool(reading.unready)
    if seen.deep_goes_on or not _is_due(state, now, limits, suspicious=suspicious):
        return Verdict(state)
    several = sum(1 for rank in state.marks if rank) > 1
    rank = next((suspect for suspect in suspects if suspect and several), "")
    return Verdict(replace(state, deep_at=now), rank)


def gets_work_done(reading: Reading, state: State) -> bool:
    """Whether `reading` shows work done since the one that `state` remembers."""
    marks = state.marks
    return any(
        rank in marks and marks[rank].value != beat.value
        for rank, beat in reading.beats.items()
        if not beat.ticks
    )


def _beating(seen: Observation, state: State, now: float) -> State:
    """Compare each beat with the last: whether anything moved, and whether it was work."""
    worked = now if gets_work_done(seen.reading, state) else state.worked
    # Of a page that did not come, the beats are as they were, and owed for longer.
    proof, marks = state.proof, {} if seen.reading.beats else dict(state.marks)
    for rank, beat in seen.reading.beats.items():
        mark = state.marks.get(rank)
        moved = mark is not None and mark.value != beat.value
        proof = now if moved else proof
        since = mark.since if mark is not None and beat.owed and not moved else now
        marks[rank] = Mark(beat.value, since)
    lost = None
    if seen.reading.turning is False:
        lost = now if state.lost is None else state.lost
    return replace(state, marks=marks, worked=worked, proof=proof, lost=lost)


def _excuse(seen: Observation, state: State, limits: Limits, *, worked: bool) -> Reason | None:
    """Why it may rightly get nothing done."""
    if seen.reading.updating:
        return Reason.UPDATING_WEIGHTS
    if seen.reading.asleep:
        return Reason.SLEEPING
    if worked:
        return None
    # SGLang takes back that a pause is meant once somebody's /health has timed out in it.
    if seen.reading.paused or (seen.reading.unready and state.reason is Reason.PAUSED):
        return Reason.PAUSED
    # The server's own word holds for as long as it gives it. A log may have ended in the middle.
    if seen.told_update is not None and seen.told_update < limits.pause_limit:
        return Reason.UPDATING_WEIGHTS
    return None


def _excused(state: State, reason: Reason, now: float) -> State:
    """Nothing is owed until the excuse ends; then all of it anew."""
    return replace(
        state,
        reason=reason,
        marks={rank: Mark(mark.value, now) for rank, mark in state.marks.items()},
        lost=None,
        proof=None if state.proof is None else now,
        held=False,
        deep_failures=0,
    )


def _completed(seen: Observation, state: State, now: float, limits: Limits) -> State:
    """Take in what came of a completion."""
    if seen.deep is None:
        return state
    match seen.deep.completion:
        case Completion.DONE:
            ranks = [rank for rank in state.marks if rank]
            proven = {"", seen.deep.rank} if seen.deep.rank or len(ranks) > 1 else {"", *ranks}
            marks = {
                rank: Mark(mark.value, now) if rank in proven else mark
                for rank, mark in state.marks.items()
            }
            return replace(
                state, marks=marks, proof=now, lost=None, held=False, deep_failures=0, rest=None
            )
        case Completion.PAUSED:
            return replace(_excused(state, Reason.PAUSED, now), held=True)
        case Completion.IMPOSSIBLE:
            # Asked again now and then all the same: a key may come, or a model.
            return replace(state, rest=now + max(limits.idle_after, 10 * limits.deep_interval))
    ordered = now if state.deep_at is None else state.deep_at
    mark = state.marks.get(seen.deep.rank)
    last = mark.since if mark and seen.deep.rank else state.worked
    if last is not None and last > ordered:
        return state  # something got done after all
    failures = state.deep_failures + 1
    # Each that fails may leave a request behind, so a server that stays hung is asked less often.
    factor = min(2 ** max(0, failures - limits.deep_failures), _LONGEST_REST)
    return replace(state, deep_failures=failures, rest=ordered + factor * limits.deep_interval)


def _reason(seen: Observation, state: State, now: float, limits: Limits) -> Reason:
    """The reason of a server that answers, and that nothing excuses."""
    if _falters(state):
        return Reason.TIMEOUT
    if state.held:
        return Reason.PAUSED
    stuck = any(now - mark.since >= limits.stall_limit for mark in state.marks.values())
    if not stuck and state.deep_failures < limits.deep_failures:
        return Reason.OK
    if seen.reading.turning is True:
        return Reason.PAUSED
    unproven = replace(state, served=state.proof is not None)
    if _starts(seen, unproven, now, limits, doubt=False):
        return Reason.STARTING
    return Reason.HUNG


def _is_due(state: State, now: float, limits: Limits, *, suspicious: bool) -> bool:
    """Whether a completion is to be asked for now."""
    if not limits.deep or (state.rest is not None and now < state.rest):
        return False
    if state.deep_at is not None and now - state.deep_at < limits.deep_interval:
        return False
    if suspicious or state.held or state.deep_failures > 0 or state.proof is None:
        return True
    if state.lost is not None and now - state.lost >= limits.stall:
        return True
    return limits.idle_after > 0 and now - state.proof >= limits.idle_after
