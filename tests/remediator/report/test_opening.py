"""The two sentences that a night's report opens with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.remediator.report.test_interruption import FAULT, incident
from tests.remediator.samples import make_worker

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.report.host_now import Trouble
from trainwarden_remediator.report.model import IncidentRecord
from trainwarden_remediator.report.opening import format_period, opening

DAY = format_period(86400.0)
TRAINED = RunState(effective_seconds=7.2 * 3600, counted_seconds=8 * 3600)


def exporter(**runs: RunState) -> ExporterState:
    return ExporterState({}, 2e10, 2e9, runs=runs)


def healed(start: float, seconds: float, number: int = 1) -> IncidentRecord:
    facts: dict[str, Any] = {"interruption_start": start, "interruption_end": start + seconds}
    return replace(incident("healed", **facts), id=number)


def second(number: int, sentence: str) -> IncidentRecord:
    """An incident whose run the exporter did not watch."""
    closed = {"gave_up": "ladder_exhausted"}.get(sentence, "resolved")
    outcome = "healed" if sentence == "healed" else None
    return replace(incident(outcome), id=number, closed=closed)


def test_a_night_is_what_the_run_trained_and_what_its_faults_cost() -> None:
    seen = exporter(demo=TRAINED)
    assert opening(seen, (), DAY, FAULT) == (
        "demo trained for 7 h 12 min of the 8 h that it was watched (90%). "
        "In the last 24 h, there was no incident."
    )
    faults = (healed(FAULT, 1800), replace(healed(FAULT + 1, 660, 2), starts_at=FAULT + 61))
    assert opening(seen, faults, DAY, FAULT).endswith("2 faults cost 41 min; both were healed.")
    assert opening(seen, faults[:1], format_period(7 * 86400.0), FAULT).endswith(
        "In the last 7 d, 1 fault cost 30 min; it was healed."
    )


def test_a_pause_that_may_have_been_an_evaluation_is_reported() -> None:
    run = RunState(effective_seconds=664, counted_seconds=664, paused_seconds=241)
    assert opening(exporter(demo=run), (), DAY, FAULT).startswith(
        "demo trained for 11 min 4 s of the 11 min 4 s that it was watched (100%), 4 min 1 s of it"
        " without a step. In"
    )


def test_an_incident_in_follow_up_is_not_over() -> None:
    facts = {"verdict": "wait", "reason": "awaiting_progress"}
    watched = Event(1, FAULT + 250, 1, None, "decision", "a", "demo", "trainer", facts)
    opened = replace(healed(FAULT, 1800), closed=None, resolved_at=None, closed_at=None)
    opened = replace(opened, events=(watched,))
    one = opening(exporter(), (opened,), DAY, FAULT)
    assert one.endswith("1 fault cost 30 min; it is healed and still watched.")
    two = (opened, healed(FAULT + 9000, 60, 2))
    assert opening(exporter(), two, DAY, FAULT).endswith(
        "1 is healed and still watched, 1 was healed."
    )


def test_the_step_of_a_fault_is_no_time_both_trained_and_lost() -> None:
    """The ledger has 30 s of the fault as training: the step cut short, and the next new one."""
    run = RunState(effective_seconds=330, counted_seconds=480, usual_step_seconds=20)
    fault = healed(FAULT, 180)
    assert opening(exporter(demo=run), (fault,), DAY, FAULT).startswith(
        "demo trained for 5 min of the 8 min that it was watched (62%). In the last 24 h, 1 fault"
        " cost 3 min;"
    )
    # Nobody watched the run for a part of this fault: the sums have nothing in common.
    unwatched = replace(run, usual_step_seconds=1)
    assert opening(exporter(demo=unwatched), (fault,), DAY, FAULT).startswith(
        "demo trained for 5 min 30"
    )


def test_incidents_of_one_interruption_are_one_fault() -> None:
    both = (healed(FAULT, 1800), healed(FAULT, 1800, 2))
    assert opening(exporter(), both, DAY, FAULT) == (
        "No run was watched. In the last 24 h, 1 fault cost 30 min; it was healed."
    )


def test_a_run_without_a_step_was_watched() -> None:
    seen = exporter(young=replace(TRAINED, counted_seconds=None, effective_seconds=None))
    assert opening(seen, (), DAY, FAULT).startswith(
        "No watched run has made a step. In the last 24 h"
    )


def test_what_is_not_healed_comes_first_and_an_unknown_cost_is_no_cost() -> None:
    assert opening(exporter(), (second(1, "gave_up"),), DAY, FAULT).endswith(
        "1 fault; it needs you."
    )
    mixed = (healed(FAULT, 60), second(2, "gave_up"), second(3, "gave_up"))
    assert opening("refused", mixed, DAY, FAULT) == (
        "How much the runs trained is not known: the exporter does not answer. "
        "In the last 24 h, 3 faults; the known cost of 1 of them is 1 min; 2 need you, "
        "1 was healed."
    )


@pytest.mark.parametrize(
    ("unwell", "sentence"),
    [
        ({}, "All 9 runs are well."),
        ({"gone": "yours"}, "All 9 runs are well."),
        ({"a": "handled"}, "9 runs: 8 are well, 1 is being healed or held."),
        ({"a": "yours"}, "9 runs: 8 are well, 1 needs you: a."),
        (dict.fromkeys("abcd", "silent"), "9 runs: 5 are well, 4 stand still."),
        (
            {"a": "silent", **dict.fromkeys("bcdef", "yours")},
            "9 runs: 3 are well, 1 stands still, 5 need you: b, c, d and 2 more.",
        ),
    ],
)
def test_of_many_runs_one_short_sentence_says_which_need_you(
    unwell: dict[str, Trouble], sentence: str
) -> None:
    seen = exporter(**dict.fromkeys("abcdefghi", TRAINED))
    first, _, rest = opening(seen, (healed(FAULT, 60),), DAY, FAULT, unwell).partition("\n\n")
    assert first == sentence
    assert rest == "In the last 24 h, 1 fault cost 1 min; it was healed."


def test_a_standstill_that_lasts_is_no_training() -> None:
    run = RunState(
        effective_seconds=886, counted_seconds=886, last_step_at=FAULT - 286, usual_step_seconds=2
    )
    shown = "demo trained for 10 min of the 14 min 46 s that it was watched (68%). In the last 24 h"
    assert opening(exporter(demo=run), (), DAY, FAULT).startswith(shown)
    # Its time was counted as stalled already.
    stalled = replace(run, effective_seconds=600, stall_limit=200)
    assert opening(exporter(demo=stalled), (), DAY, FAULT).startswith(shown)
    evaluates = replace(run, phase="evaluating")
    assert "(100%)" in opening(exporter(demo=evaluates), (), DAY, FAULT)


def test_runs_without_a_step_count_too() -> None:
    """As on the exporter's page: they are known by their workers."""
    steps = dict.fromkeys(("a", "b"), TRAINED)
    workers = {
        WorkerKey(run, worker): make_worker(finished=run == "c")
        for run, worker in (("a", "trainer"), ("c", "trainer"), ("d", "trainer"), ("d", "server"))
    }
    seen = ExporterState(workers, 2e10, 2e9, runs=steps)
    assert opening(seen, (), DAY, FAULT).startswith("All 4 runs are well.")
    assert [run.finished for run in seen.all_runs.values()] == [False, False, True, False]
    ended = {key: worker for key, worker in workers.items() if key.run == "c"}
    alone = opening(ExporterState(ended, 2e10, 2e9), (), DAY, FAULT)
    assert alone.startswith("No watched run has made a step.")
