"""Health state machine: derives the health of a server from one observation and the previous state.

Pure. Proof of a dead server counts at once; symptoms that load can cause must last; an answering
server counts as hung only if nothing explains its lack of activity and one-token completions fail
too.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from trainwarden_exporter.inference.engine_stats import Completion, EngineStats, Liveness
from trainwarden_exporter.inference.health_model import (
    ActivityMark,
    HealthAssessment,
    HealthLimits,
    HealthReason,
    HealthState,
    ProbeResult,
)

_FAILURE_REASONS = {
    Liveness.SILENT: HealthReason.TIMEOUT,
    Liveness.UNREACHABLE: HealthReason.UNREACHABLE,
    Liveness.BROKEN: HealthReason.STATUS,
    Liveness.BAD: HealthReason.STATUS,
    Liveness.NOT_READY: HealthReason.STATUS,
}
_IMMEDIATE_REASONS = {
    Liveness.DEAD: HealthReason.ENGINE_DEAD,
    Liveness.UNAUTHORIZED: HealthReason.UNAUTHORIZED,
    Liveness.LOADING: HealthReason.STARTING,
}
_STALL_SECONDS = 15.0
"""Time without work, despite requests, before a completion is requested."""
_STALL_LIMIT_SECONDS = 300.0
"""Time without work, despite requests, that alone proves a hang; the engines' own watchdogs wait as
long."""
_TIMEOUT_WINDOW = 8
_MIN_TIMEOUTS = 4
_MAX_BACKOFF_FACTOR = 4
_GRACE_FACTOR = 2
_BUSY_GAP_SECONDS = 60.0
"""Seconds for which work counts: it may pause between two parts of a request."""


def assess_health(
    result: ProbeResult, state: HealthState, now: float, limits: HealthLimits
) -> HealthAssessment:
    """Returns the assessment of `result` given `state`; `now` is a monotonic time."""
    state = _reset_for_new_process(result, state, now)
    if result.liveness is Liveness.REFUSED:
        return HealthAssessment(_after_refusal(result, state, now, limits))
    if result.liveness is not Liveness.SERVING:
        return HealthAssessment(_after_failure(result, state, now, limits))
    return _after_success(result, state, now, limits)


def _reset_for_new_process(result: ProbeResult, state: HealthState, now: float) -> HealthState:
    """Resets the state of a process that has ended."""
    started = result.process.started if result.process else None
    if started is not None and state.process not in (None, started):
        state = HealthState(reason=state.reason, failures=state.failures)
    elif (
        result.process is None
        and state.reason is HealthReason.REFUSED
        and result.liveness is not Liveness.REFUSED
    ):
        state = replace(state, has_served=False)
    return replace(
        state,
        process=state.process if started is None else started,
        first_probe_at=now if state.first_probe_at is None else state.first_probe_at,
    )


def _is_starting(
    result: ProbeResult, state: HealthState, now: float, limits: HealthLimits, *, if_unknown: bool
) -> bool:
    """Whether it is still starting: it has not served yet, and its process is young.

    After its grace period a rule alerts the operator; only after twice that does it count as dead,
    because a restart would discard everything that it has loaded. If its process is unknown, a
    server that was not observed to start counts as starting if `if_unknown`.
    """
    if state.has_served:
        return False
    if result.process is not None:
        started = result.process.started is not None
        return started and result.process.age < _GRACE_FACTOR * limits.start_grace
    first = state.first_probe_at if if_unknown else None
    since = first if state.refused_at is None else state.refused_at
    return since is not None and now - since < limits.start_grace


def _after_refusal(
    result: ProbeResult, state: HealthState, now: float, limits: HealthLimits
) -> HealthState:
    is_starting = _is_starting(
        result, replace(state, refused_at=None), now, limits, if_unknown=True
    )
    return HealthState(
        reason=HealthReason.STARTING if is_starting else HealthReason.REFUSED,
        process=state.process,
        first_probe_at=state.first_probe_at,
        refused_at=now,
        has_served=state.has_served,
        failures=state.failures + 1,
    )


def _after_failure(
    result: ProbeResult, state: HealthState, now: float, limits: HealthLimits
) -> HealthState:
    silent = result.liveness is Liveness.SILENT
    timeouts = (*state.timeouts, silent and not result.at_work)[-_TIMEOUT_WINDOW:]
    state = replace(
        _after_silence(result, state, now) if silent else _answered(state),
        timeouts=timeouts,
        failures=state.failures + 1,
        idle_failures=state.idle_failures + 1 if result.idle else 0,
        loop_lost_at=None,
    )
    if result.liveness in _IMMEDIATE_REASONS:
        return replace(state, reason=_IMMEDIATE_REASONS[result.liveness])
    if _is_starting(result, state, now, limits, if_unknown=result.liveness is Liveness.NOT_READY):
        return replace(state, reason=HealthReason.STARTING)
    # The kernel proves what a silence only suggests: load keeps a process busy.
    if result.stopped or state.idle_failures >= limits.failures:
        return replace(state, reason=HealthReason.HUNG)
    if _is_busy(state, now):
        if state.failures < limits.failures and state.reason is not HealthReason.BUSY:
            return state
        since = now if state.silent_since is None else state.silent_since
        return replace(state, reason=HealthReason.BUSY, overdue=now - since > limits.busy_limit)
    if state.reason is HealthReason.HUNG and silent:
        return state
    if state.failures >= limits.failures or _is_intermittent(state):
        return replace(state, reason=_FAILURE_REASONS[result.liveness])
    return state


def _after_silence(result: ProbeResult, state: HealthState, now: float) -> HealthState:
    return replace(
        state,
        silent_since=now if state.silent_since is None else state.silent_since,
        at_work_at=now if result.at_work else state.at_work_at,
        last_progress_at=now if result.at_work else state.last_progress_at,
        overdue=False,
    )


def _answered(state: HealthState) -> HealthState:
    """Ends a silence."""
    return replace(state, silent_since=None, at_work_at=None, overdue=False)


def _is_busy(state: HealthState, now: float) -> bool:
    """Whether it is silent, and has worked just now."""
    return state.at_work_at is not None and now - state.at_work_at <= _BUSY_GAP_SECONDS


def _is_intermittent(state: HealthState) -> bool:
    """Whether it repeatedly fails to answer, as when one of several API processes is frozen."""
    recoveries = sum(1 for one, following in pairwise(state.timeouts) if one and not following)
    enough = 1 if state.reason is HealthReason.TIMEOUT else _MIN_TIMEOUTS
    return sum(state.timeouts) >= enough and recoveries > 1


def _after_success(
    result: ProbeResult, state: HealthState, now: float, limits: HealthLimits
) -> HealthAssessment:
    timeouts = (*state.timeouts, False)[-_TIMEOUT_WINDOW:] if any(state.timeouts) else ()
    state = _update_activity(
        result, replace(_answered(state), failures=0, idle_failures=0, timeouts=timeouts), now
    )
    stats = result.stats
    idle_reason = _idle_reason(result, state, limits, worked=state.last_progress_at == now)
    if stats.unready and _is_starting(result, state, now, limits, if_unknown=idle_reason is None):
        return HealthAssessment(_with_idle_reason(state, HealthReason.STARTING, now))
    if idle_reason is not None:
        return HealthAssessment(
            replace(_with_idle_reason(state, idle_reason, now), has_served=True)
        )
    state = _after_completion(result, state, now, limits)
    suspects = [
        rank for rank, mark in state.activity_marks.items() if now - mark.since >= _STALL_SECONDS
    ]
    if state.last_progress_at == now and not suspects:
        state = replace(state, completion_failures=0, completion_paused=False)
    state = replace(state, reason=_health_reason(result, state, now, limits), has_served=True)
    suspicious = bool(suspects) or bool(stats.unready)
    if result.completion_pending or not _is_due(state, now, limits, suspicious=suspicious):
        return HealthAssessment(state)
    several = sum(1 for rank in state.activity_marks if rank) > 1
    rank = next((suspect for suspect in suspects if suspect and several), "")
    return HealthAssessment(replace(state, completion_at=now), rank)


def has_progressed(stats: EngineStats, state: HealthState) -> bool:
    """Whether `stats` shows work since the previous statistics in `state`."""
    marks = state.activity_marks
    return any(
        rank in marks and marks[rank].value != counter.value
        for rank, counter in stats.activity.items()
        if not counter.always_changes
    )


def _update_activity(result: ProbeResult, state: HealthState, now: float) -> HealthState:
    """Compares each counter with its previous value, for signs of life and of work."""
    worked = now if has_progressed(result.stats, state) else state.last_progress_at
    proven_alive_at = state.proven_alive_at
    # Without new metrics, changes of the counters remain due.
    activity_marks = {} if result.stats.activity else dict(state.activity_marks)
    for rank, counter in result.stats.activity.items():
        mark = state.activity_marks.get(rank)
        changed = mark is not None and mark.value != counter.value
        proven_alive_at = now if changed else proven_alive_at
        since = mark.since if mark is not None and counter.should_change and not changed else now
        activity_marks[rank] = ActivityMark(counter.value, since)
    loop_lost_at = None
    if result.stats.loop_alive is False:
        loop_lost_at = now if state.loop_lost_at is None else state.loop_lost_at
    return replace(
        state,
        activity_marks=activity_marks,
        last_progress_at=worked,
        proven_alive_at=proven_alive_at,
        loop_lost_at=loop_lost_at,
    )


def _idle_reason(
    result: ProbeResult, state: HealthState, limits: HealthLimits, *, worked: bool
) -> HealthReason | None:
    """Returns why the server is legitimately idle, or None."""
    if result.stats.updating:
        return HealthReason.UPDATING_WEIGHTS
    if result.stats.sleeping:
        return HealthReason.SLEEPING
    if worked:
        return None
    # SGLang no longer reports a pause once a /health request has timed out in it.
    if result.stats.paused or (result.stats.unready and state.reason is HealthReason.PAUSED):
        return HealthReason.PAUSED
    # A log may have ended during the update, so this counts only up to the limit.
    if result.logged_update is not None and result.logged_update < limits.pause_limit:
        return HealthReason.UPDATING_WEIGHTS
    return None


def _with_idle_reason(state: HealthState, reason: HealthReason, now: float) -> HealthState:
    """Suspends all expectations until the reason ends."""
    return replace(
        state,
        reason=reason,
        activity_marks={
            rank: ActivityMark(mark.value, now) for rank, mark in state.activity_marks.items()
        },
        loop_lost_at=None,
        proven_alive_at=None if state.proven_alive_at is None else now,
        completion_paused=False,
        completion_failures=0,
    )


def _after_completion(
    result: ProbeResult, state: HealthState, now: float, limits: HealthLimits
) -> HealthState:
    if result.completion is None:
        return state
    match result.completion.outcome:
        case Completion.DONE:
            # A token proves its own rank, and the only rank if there is one.
            ranks = [rank for rank in state.activity_marks if rank]
            only_rank = ranks[0] if len(ranks) == 1 else ""
            proven = {"", result.completion.rank or only_rank}
            activity_marks = {
                rank: ActivityMark(mark.value, now) if rank in proven else mark
                for rank, mark in state.activity_marks.items()
            }
            return replace(
                state,
                activity_marks=activity_marks,
                proven_alive_at=now,
                loop_lost_at=None,
                completion_paused=False,
                completion_failures=0,
                no_completion_before=None,
            )
        case Completion.PAUSED:
            return replace(
                _with_idle_reason(state, HealthReason.PAUSED, now), completion_paused=True
            )
        case Completion.IMPOSSIBLE:
            # Still requested occasionally: a key or a model may become available.
            pause = max(limits.idle_after, 10 * limits.completion_interval)
            return replace(state, no_completion_before=now + pause)
    requested = now if state.completion_at is None else state.completion_at
    mark = state.activity_marks.get(result.completion.rank)
    last = mark.since if mark and result.completion.rank else state.last_progress_at
    if last is not None and last > requested:
        return state  # the server has worked since the request
    failures = state.completion_failures + 1
    # Each failure may leave a request behind, so a hung server gets fewer requests.
    factor = min(2 ** max(0, failures - limits.completion_failures), _MAX_BACKOFF_FACTOR)
    return replace(
        state,
        completion_failures=failures,
        no_completion_before=requested + factor * limits.completion_interval,
    )


def _health_reason(
    result: ProbeResult, state: HealthState, now: float, limits: HealthLimits
) -> HealthReason:
    """Returns the health reason of an answering server without an idle reason."""
    if _is_intermittent(state):
        return HealthReason.TIMEOUT
    if state.completion_paused:
        return HealthReason.PAUSED
    stuck = any(now - mark.since >= _STALL_LIMIT_SECONDS for mark in state.activity_marks.values())
    if not stuck and state.completion_failures < limits.completion_failures:
        return HealthReason.OK
    if result.stats.loop_alive is True:
        return HealthReason.PAUSED
    unproven = replace(state, has_served=state.proven_alive_at is not None)
    if _is_starting(result, unproven, now, limits, if_unknown=False):
        return HealthReason.STARTING
    return HealthReason.HUNG


def _is_due(state: HealthState, now: float, limits: HealthLimits, *, suspicious: bool) -> bool:
    if not limits.probes_completions:
        return False
    if state.no_completion_before is not None and now < state.no_completion_before:
        return False
    if state.completion_at is not None and now - state.completion_at < limits.completion_interval:
        return False
    if (
        suspicious
        or state.completion_paused
        or state.completion_failures > 0
        or state.proven_alive_at is None
    ):
        return True
    if state.loop_lost_at is not None and now - state.loop_lost_at >= _STALL_SECONDS:
        return True
    return limits.idle_after > 0 and now - state.proven_alive_at >= limits.idle_after
