"""The rules one by one; the whole of them is tried on engines in the tests of nights."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwarden_exporter.inference.judging import gets_work_done, judge
from trainwarden_exporter.inference.reading import Beat, Completion, Life, Reading
from trainwarden_exporter.inference.verdict import (
    UP,
    Deep,
    Limits,
    Mark,
    Observation,
    ProcessFact,
    Reason,
    State,
)

LIMITS = Limits()
SERVING = Observation(Life.SERVING)
SERVED = State(reason=Reason.OK, first=0, served=True, proof=0, deep_at=0)


def after(*seen: Observation, state: State = SERVED, step: float = 5.0) -> State:
    """The state after these rounds, each `step` seconds after the one before."""
    for number, one in enumerate(seen, start=1):
        state = judge(one, state, number * step, LIMITS).state
    return state


@pytest.mark.parametrize(
    ("life", "reason"),
    [
        (Life.REFUSED, Reason.REFUSED),
        (Life.DEAD, Reason.ENGINE_DEAD),
        (Life.UNAUTHORIZED, Reason.UNAUTHORIZED),
        (Life.LOADING, Reason.STARTING),
    ],
)
def test_what_proves_itself_counts_at_once(life: Life, reason: Reason) -> None:
    assert after(Observation(life)).reason is reason


@pytest.mark.parametrize(
    ("life", "reason"),
    [
        (Life.SILENT, Reason.TIMEOUT),
        (Life.BROKEN, Reason.STATUS),
        (Life.BAD, Reason.STATUS),
        (Life.NOT_READY, Reason.STATUS),
        (Life.UNREACHABLE, Reason.UNREACHABLE),
    ],
)
def test_what_may_be_haste_has_to_happen_three_times_in_a_row(life: Life, reason: Reason) -> None:
    bad = Observation(life)
    assert after(bad, bad).reason is Reason.OK
    assert after(bad, bad).failures == 2
    assert after(bad, bad, SERVING, bad, bad).reason is Reason.OK
    assert after(bad, bad, bad).reason is reason
    assert after(bad, bad, bad, SERVING).reason is Reason.OK


def test_as_long_as_nothing_is_known_nothing_is_said() -> None:
    verdict = judge(Observation(Life.SILENT), State(), 0, LIMITS)
    assert verdict.reason is None
    assert verdict.up is None


def test_a_first_token_is_ordered_at_once() -> None:
    assert judge(SERVING, State(), 0, LIMITS).deep == ""


def test_no_token_is_ordered_while_another_one_is_awaited() -> None:
    assert judge(replace(SERVING, deep_goes_on=True), State(), 0, LIMITS).deep is None


def test_none_is_ordered_where_they_are_switched_off() -> None:
    assert judge(SERVING, State(), 0, replace(LIMITS, deep=False)).deep is None


def test_an_idle_server_is_asked_for_one_when_it_is_time() -> None:
    assert judge(SERVING, SERVED, 59, LIMITS).deep is None
    assert judge(SERVING, SERVED, 60, LIMITS).deep == ""
    assert judge(SERVING, SERVED, 6000, replace(LIMITS, idle_after=0)).deep is None


def test_work_that_lies_is_suspicious_after_a_while() -> None:
    lying = replace(SERVING, reading=Reading(beats={"0": Beat(7, owed=True)}))
    state = replace(SERVED, marks={"0": Mark(7, since=0)}, deep_at=-100)
    assert judge(lying, state, 14, LIMITS).deep is None
    assert judge(lying, state, 15, LIMITS).deep == ""


def test_work_is_owed_from_when_it_came() -> None:
    idle = replace(SERVING, reading=Reading(beats={"0": Beat(7, owed=False)}))
    lying = replace(SERVING, reading=Reading(beats={"0": Beat(7, owed=True)}))
    assert after(idle, idle, lying, lying).marks["0"].since == 10


def test_a_tick_is_a_sign_of_life_and_no_work() -> None:
    first = Reading(beats={"0": Beat(1, owed=True, ticks=True)})
    second = Reading(beats={"0": Beat(2, owed=True, ticks=True)})
    state = after(replace(SERVING, reading=first))
    assert not gets_work_done(second, state)
    state = judge(replace(SERVING, reading=second), state, 99, LIMITS).state
    assert state.proof == 99
    assert state.worked is None


def test_a_page_of_metrics_that_does_not_come_leaves_what_is_owed_as_it_was() -> None:
    lying = replace(SERVING, reading=Reading(beats={"0": Beat(7, owed=True)}))
    state = after(lying, SERVING, SERVING)
    assert state.marks == {"0": Mark(7, since=5)}


def test_a_failed_token_counts_unless_something_got_done_since_it_was_asked_for() -> None:
    failed = replace(SERVING, deep=Deep(Completion.FAILED))
    assert judge(failed, replace(SERVED, deep_at=10, worked=5), 30, LIMITS).state.deep_failures == 1
    assert (
        judge(failed, replace(SERVED, deep_at=10, worked=15), 30, LIMITS).state.deep_failures == 0
    )


def test_the_one_that_fails_last_makes_it_hung_and_the_one_that_comes_clears_it() -> None:
    failed = replace(SERVING, deep=Deep(Completion.FAILED))
    hung = after(failed, failed)
    assert hung.reason is Reason.HUNG
    done = judge(replace(SERVING, deep=Deep(Completion.DONE)), hung, 100, LIMITS).state
    assert done.reason is Reason.OK
    assert done.deep_failures == 0


def test_a_server_that_stays_hung_is_asked_ever_more_seldom() -> None:
    failed = replace(SERVING, deep=Deep(Completion.FAILED))
    rests = []
    state = SERVED
    for number in range(6):
        state = judge(failed, replace(state, deep_at=0), number, LIMITS).state
        rests.append(state.rest)
    assert rests == [20, 20, 40, 80, 80, 80]


def test_a_token_that_cannot_be_asked_for_is_not_held_against_the_server() -> None:
    state = after(replace(SERVING, deep=Deep(Completion.IMPOSSIBLE)))
    assert state.reason is Reason.OK
    assert state.rest == 205


def test_a_token_of_one_rank_proves_nothing_about_another() -> None:
    state = replace(SERVED, marks={"0": Mark(1, 0), "1": Mark(1, 0)})
    beats = {rank: Beat(1, owed=True) for rank in ("0", "1")}
    done = Observation(Life.SERVING, Reading(beats=beats), deep=Deep(Completion.DONE, rank="1"))
    marks = judge(done, state, 10, LIMITS).state.marks
    assert (marks["0"].since, marks["1"].since) == (0, 10)
    unknown = replace(done, deep=Deep(Completion.DONE))
    marks = judge(unknown, state, 10, LIMITS).state.marks
    assert (marks["0"].since, marks["1"].since) == (0, 0)


def test_of_several_ranks_the_one_that_lies_is_asked() -> None:
    state = replace(SERVED, marks={"0": Mark(1, 0), "1": Mark(1, 0)})
    beats = {"0": Beat(2, owed=True), "1": Beat(1, owed=True)}
    assert judge(Observation(Life.SERVING, Reading(beats=beats)), state, 60, LIMITS).deep == "1"


def test_an_excuse_lets_nothing_be_owed_from_before_it() -> None:
    lying = Reading(beats={"0": Beat(7, owed=True)})
    paused = replace(SERVING, reading=replace(lying, paused=True))
    state = after(*[paused] * 20)
    assert state.reason is Reason.PAUSED
    assert state.marks["0"].since == 100
    assert judge(replace(SERVING, reading=lying), state, 110, LIMITS).deep is None


def test_a_new_process_has_no_history() -> None:
    old = replace(SERVED, process=1000.0, deep_failures=2, reason=Reason.HUNG)
    young = replace(SERVING, process=ProcessFact(2000.0, age=3))
    state = judge(young, old, 50, LIMITS).state
    assert state.reason is Reason.OK
    assert (state.process, state.first, state.deep_failures) == (2000.0, 50, 0)


def test_the_same_process_keeps_its_history() -> None:
    old = replace(SERVED, process=1000.0, deep_failures=2, reason=Reason.HUNG)
    same = replace(SERVING, process=ProcessFact(1000.0, age=3))
    assert judge(same, old, 50, LIMITS).state.reason is Reason.HUNG


@pytest.mark.parametrize("reason", list(Reason))
def test_what_serves_or_was_told_not_to_is_up(reason: Reason) -> None:
    up = {"ok", "paused", "sleeping", "updating_weights", "unauthorized"}
    assert (reason in UP) == (reason.value in up)
