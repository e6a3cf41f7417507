"""Single transitions of the state machine; the nights test them together on engines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwarden_exporter.inference.engine_stats import (
    ActivityCounter,
    Completion,
    EngineStats,
    Liveness,
)
from trainwarden_exporter.inference.health import assess_health, has_progressed
from trainwarden_exporter.inference.health_model import (
    UP,
    ActivityMark,
    CompletionProbe,
    HealthLimits,
    HealthReason,
    HealthState,
    ProbeResult,
    ProcessInfo,
)

LIMITS = HealthLimits()
SERVING = ProbeResult(Liveness.SERVING)
SERVED = HealthState(
    reason=HealthReason.OK, first_probe_at=0, has_served=True, proven_alive_at=0, completion_at=0
)


def after(*seen: ProbeResult, state: HealthState = SERVED, step: float = 5.0) -> HealthState:
    """Returns the state after these rounds, `step` seconds apart."""
    for number, one in enumerate(seen, start=1):
        state = assess_health(one, state, number * step, LIMITS).state
    return state


@pytest.mark.parametrize(
    ("liveness", "reason"),
    [
        (Liveness.REFUSED, HealthReason.REFUSED),
        (Liveness.DEAD, HealthReason.ENGINE_DEAD),
        (Liveness.UNAUTHORIZED, HealthReason.UNAUTHORIZED),
        (Liveness.LOADING, HealthReason.STARTING),
    ],
)
def test_proof_counts_at_once(liveness: Liveness, reason: HealthReason) -> None:
    assert after(ProbeResult(liveness)).reason is reason


@pytest.mark.parametrize(
    ("liveness", "reason"),
    [
        (Liveness.SILENT, HealthReason.TIMEOUT),
        (Liveness.BROKEN, HealthReason.STATUS),
        (Liveness.BAD, HealthReason.STATUS),
        (Liveness.NOT_READY, HealthReason.STATUS),
        (Liveness.UNREACHABLE, HealthReason.UNREACHABLE),
    ],
)
def test_a_symptom_that_load_can_cause_counts_after_three_rounds(
    liveness: Liveness, reason: HealthReason
) -> None:
    bad = ProbeResult(liveness)
    assert after(bad, bad).reason is HealthReason.OK
    assert after(bad, bad).failures == 2
    assert after(bad, bad, SERVING, bad, bad).reason is HealthReason.OK
    assert after(bad, bad, bad).reason is reason
    assert after(bad, bad, bad, SERVING).reason is HealthReason.OK


def test_without_any_answer_there_are_no_samples() -> None:
    verdict = assess_health(ProbeResult(Liveness.SILENT), HealthState(), 0, LIMITS)
    assert verdict.reason is None
    assert verdict.up is None


def test_the_first_token_is_requested_at_once() -> None:
    assert assess_health(SERVING, HealthState(), 0, LIMITS).completion_rank == ""


def test_no_token_is_requested_while_another_is_pending() -> None:
    assert (
        assess_health(
            replace(SERVING, completion_pending=True), HealthState(), 0, LIMITS
        ).completion_rank
        is None
    )


def test_no_token_is_requested_if_completions_are_disabled() -> None:
    assert (
        assess_health(
            SERVING, HealthState(), 0, replace(LIMITS, probes_completions=False)
        ).completion_rank
        is None
    )


def test_a_token_is_requested_from_an_idle_server_when_due() -> None:
    assert assess_health(SERVING, SERVED, 59, LIMITS).completion_rank is None
    assert assess_health(SERVING, SERVED, 60, LIMITS).completion_rank == ""
    assert (
        assess_health(SERVING, SERVED, 6000, replace(LIMITS, idle_after=0)).completion_rank is None
    )


def test_queued_work_without_progress_is_suspicious_after_a_while() -> None:
    lying = replace(
        SERVING, stats=EngineStats(activity={"0": ActivityCounter(7, should_change=True)})
    )
    state = replace(SERVED, activity_marks={"0": ActivityMark(7, since=0)}, completion_at=-100)
    assert assess_health(lying, state, 14, LIMITS).completion_rank is None
    assert assess_health(lying, state, 15, LIMITS).completion_rank == ""


def test_progress_is_due_from_the_first_request() -> None:
    idle = replace(
        SERVING, stats=EngineStats(activity={"0": ActivityCounter(7, should_change=False)})
    )
    lying = replace(
        SERVING, stats=EngineStats(activity={"0": ActivityCounter(7, should_change=True)})
    )
    assert after(idle, idle, lying, lying).activity_marks["0"].since == 10


def test_a_loop_iteration_is_a_sign_of_life_but_not_work() -> None:
    first_probe_at = EngineStats(
        activity={"0": ActivityCounter(1, should_change=True, always_changes=True)}
    )
    second = EngineStats(
        activity={"0": ActivityCounter(2, should_change=True, always_changes=True)}
    )
    state = after(replace(SERVING, stats=first_probe_at))
    assert not has_progressed(second, state)
    state = assess_health(replace(SERVING, stats=second), state, 99, LIMITS).state
    assert state.proven_alive_at == 99
    assert state.last_progress_at is None


def test_a_missing_page_of_metrics_leaves_due_progress_unchanged() -> None:
    lying = replace(
        SERVING, stats=EngineStats(activity={"0": ActivityCounter(7, should_change=True)})
    )
    state = after(lying, SERVING, SERVING)
    assert state.activity_marks == {"0": ActivityMark(7, since=5)}


def test_a_failed_token_counts_unless_work_was_done_since_its_request() -> None:
    failed = replace(SERVING, completion=CompletionProbe(Completion.FAILED))
    assert (
        assess_health(
            failed, replace(SERVED, completion_at=10, last_progress_at=5), 30, LIMITS
        ).state.completion_failures
        == 1
    )
    assert (
        assess_health(
            failed, replace(SERVED, completion_at=10, last_progress_at=15), 30, LIMITS
        ).state.completion_failures
        == 0
    )


def test_the_last_failed_probe_makes_it_hung_and_the_next_answer_clears_it() -> None:
    failed = replace(SERVING, completion=CompletionProbe(Completion.FAILED))
    hung = after(failed, failed)
    assert hung.reason is HealthReason.HUNG
    done = assess_health(
        replace(SERVING, completion=CompletionProbe(Completion.DONE)), hung, 100, LIMITS
    ).state
    assert done.reason is HealthReason.OK
    assert done.completion_failures == 0


def test_a_hung_server_gets_ever_fewer_requests() -> None:
    failed = replace(SERVING, completion=CompletionProbe(Completion.FAILED))
    rests = []
    state = SERVED
    for number in range(6):
        state = assess_health(failed, replace(state, completion_at=0), number, LIMITS).state
        rests.append(state.no_completion_before)
    assert rests == [20, 20, 40, 80, 80, 80]


def test_an_impossible_token_is_no_failure_of_the_server() -> None:
    state = after(replace(SERVING, completion=CompletionProbe(Completion.IMPOSSIBLE)))
    assert state.reason is HealthReason.OK
    assert state.no_completion_before == 205


def test_a_token_of_one_rank_proves_nothing_about_another() -> None:
    state = replace(SERVED, activity_marks={"0": ActivityMark(1, 0), "1": ActivityMark(1, 0)})
    activity = {rank: ActivityCounter(1, should_change=True) for rank in ("0", "1")}
    done = ProbeResult(
        Liveness.SERVING,
        EngineStats(activity=activity),
        completion=CompletionProbe(Completion.DONE, rank="1"),
    )
    activity_marks = assess_health(done, state, 10, LIMITS).state.activity_marks
    assert (activity_marks["0"].since, activity_marks["1"].since) == (0, 10)
    unknown = replace(done, completion=CompletionProbe(Completion.DONE))
    activity_marks = assess_health(unknown, state, 10, LIMITS).state.activity_marks
    assert (activity_marks["0"].since, activity_marks["1"].since) == (0, 0)


def test_of_several_ranks_the_idle_rank_is_asked() -> None:
    state = replace(SERVED, activity_marks={"0": ActivityMark(1, 0), "1": ActivityMark(1, 0)})
    activity = {
        "0": ActivityCounter(2, should_change=True),
        "1": ActivityCounter(1, should_change=True),
    }
    assert (
        assess_health(
            ProbeResult(Liveness.SERVING, EngineStats(activity=activity)), state, 60, LIMITS
        ).completion_rank
        == "1"
    )


def test_an_idle_reason_resets_due_progress() -> None:
    lying = EngineStats(activity={"0": ActivityCounter(7, should_change=True)})
    paused = replace(SERVING, stats=replace(lying, paused=True))
    state = after(*[paused] * 20)
    assert state.reason is HealthReason.PAUSED
    assert state.activity_marks["0"].since == 100
    assert assess_health(replace(SERVING, stats=lying), state, 110, LIMITS).completion_rank is None


def test_a_new_process_has_no_history() -> None:
    old = replace(SERVED, process=1000.0, completion_failures=2, reason=HealthReason.HUNG)
    young = replace(SERVING, process=ProcessInfo(2000.0, age=3))
    state = assess_health(young, old, 50, LIMITS).state
    assert state.reason is HealthReason.OK
    assert (state.process, state.first_probe_at, state.completion_failures) == (2000.0, 50, 0)


def test_the_same_process_keeps_its_history() -> None:
    old = replace(SERVED, process=1000.0, completion_failures=2, reason=HealthReason.HUNG)
    same = replace(SERVING, process=ProcessInfo(1000.0, age=3))
    assert assess_health(same, old, 50, LIMITS).state.reason is HealthReason.HUNG


@pytest.mark.parametrize("reason", list(HealthReason))
def test_a_server_that_serves_or_is_paused_is_up(reason: HealthReason) -> None:
    up = {"ok", "busy", "paused", "sleeping", "updating_weights", "unauthorized"}
    assert (reason in UP) == (reason.value in up)
