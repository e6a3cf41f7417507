from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import NOW, ROLLOUT, TRAINER, make_alert, make_config

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.database import connect
from trainwarden_remediator.journal.event_text import describe, describe_attempt, describe_reason
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.queries import LAST_ACTIONS
from trainwarden_remediator.journal.rows import read_events
from trainwarden_remediator.journal.transitions import SAME_OUTAGE_SECONDS
from trainwarden_remediator.model import (
    GIVEN_UP,
    NEEDS_OPERATOR,
    Decision,
    Incident,
    PastAction,
    Reason,
    Verdict,
)
from trainwarden_remediator.report.loader import open_journal, read_incidents

PROCESSES = (Identity(11, 100), Identity(12, 101))


def kinds(journal: Journal) -> list[str]:
    return [event.kind for event in reversed(journal.newest_events(100))]


def only(journal: Journal) -> Incident:
    (incident,) = journal.open_incidents()
    return incident


def intended(journal: Journal) -> int:
    journal.record_alerts([make_alert()])
    return journal.record_intent(only(journal).id, ROLLOUT, "restart", PROCESSES)


# hearing


def test_an_alert_becomes_an_open_incident(journal: Journal) -> None:
    journal.record_alerts([make_alert(starts_at=NOW - 30)])
    assert only(journal) == Incident(
        id=1,
        fingerprint="0123456789abcdef",
        starts_at=NOW - 30,
        alert="TrainingWorkerMemoryOverLimit",
        run="demo",
        worker="rollout-0",
        remediation="restart_leaking_worker",
        last_received_at=NOW,
        resolved=False,
        labels=make_alert().labels,
    )


def test_a_repeated_delivery_is_the_same_incident(journal: Journal, clock: FakeClock) -> None:
    journal.record_alerts([make_alert()])
    clock.pass_by(60)
    journal.record_alerts([make_alert(), make_alert()])
    assert only(journal).last_received_at == NOW + 60
    assert kinds(journal) == ["alert"]
    assert journal.counters()["alerts_received"] == {("firing",): 3}


def test_the_same_alert_with_a_later_start_is_another_incident(journal: Journal) -> None:
    journal.record_alerts([make_alert(starts_at=NOW), make_alert(starts_at=NOW + 1)])
    assert [incident.starts_at for incident in journal.open_incidents()] == [NOW, NOW + 1]


@pytest.mark.parametrize("decided", [None, Decision(Verdict.REFUSE, "ladder_exhausted")])
def test_an_alert_whose_end_never_arrived_is_over_once_it_has_a_later_start(
    journal: Journal, clock: FakeClock, decided: Decision | None
) -> None:
    """The stack was restarted during an action on it: the alert began again, and then ended."""
    action = intended(journal)
    if decided is not None:
        journal.record_decisions([(only(journal), decided)])
    clock.pass_by(SAME_OUTAGE_SECONDS + 40)
    later = clock.now()
    journal.record_alerts([make_alert(starts_at=later)])
    assert [one.resolved for one in journal.open_incidents()][-1:] == [False]
    journal.record_result(action, "done")
    journal.record_alerts([make_alert(starts_at=later, firing=False)])
    assert all(one.resolved for one in journal.open_incidents())
    assert kinds(journal).count("resolved") == 2
    found = journal.file.connection.execute("SELECT id FROM incident WHERE resolved_at IS NULL")
    assert found.fetchall() == []


def test_the_end_of_an_alert_ends_what_began_before(journal: Journal, clock: FakeClock) -> None:
    """Its start is later than that of the incident where a firing of it was never received."""
    journal.record_alerts([make_alert()])
    clock.pass_by(40)
    journal.record_alerts([make_alert(starts_at=clock.now(), firing=False)])
    assert only(journal).resolved


def tried(journal: Journal, outcome: Literal["healed", "not_healed"]) -> None:
    """An alert, an action with that outcome, and the end of the alert, as decided."""
    action = intended(journal)
    journal.record_result(action, "done")
    journal.record_outcome(action, outcome)
    journal.record_alerts([make_alert(firing=False)])
    journal.record_decisions([(only(journal), Decision(Verdict.REFUSE, "resolved"))])


def test_an_alert_that_fires_again_before_it_was_healed_is_the_same_incident(
    journal: Journal, clock: FakeClock, tmp_path: Path
) -> None:
    tried(journal, "not_healed")
    clock.pass_by(SAME_OUTAGE_SECONDS - 1)
    journal.record_alerts([make_alert(starts_at=clock.now())])
    again = only(journal)
    assert (again.id, again.starts_at, again.resolved) == (1, clock.now(), False)
    gave_up = Decision(Verdict.REFUSE, "attempts_exhausted")
    assert journal.record_decisions([(again, gave_up)])
    # given up, it stays so: also where no end of the alert arrived
    clock.pass_by(40)
    journal.record_alerts([make_alert(starts_at=clock.now())])
    assert journal.open_incidents() == ()
    assert kinds(journal)[-2:] == ["decision", "alert"]
    with open_journal(tmp_path / "journal.db") as db:
        (found,) = read_incidents(db, 0.0)
    assert (found.starts_at, found.closed) == (NOW, "attempts_exhausted")


def test_after_a_healing_or_without_an_action_it_is_another_incident(
    journal: Journal, clock: FakeClock
) -> None:
    tried(journal, "healed")
    clock.pass_by(30)
    journal.record_alerts([make_alert(starts_at=clock.now())])
    assert only(journal).id == 2
    journal.record_alerts([make_alert(starts_at=clock.now(), firing=False)])
    clock.pass_by(30)  # without an action
    journal.record_alerts([make_alert(starts_at=clock.now())])
    assert [one.id for one in journal.open_incidents()] == [2, 3]


@pytest.mark.parametrize(
    "lasts", [Decision(Verdict.WAIT, "stall_lasts"), Decision(Verdict.REFUSE, "no_checkpoint")]
)
def test_a_stall_whose_alert_fires_again_is_the_same_incident(
    journal: Journal, clock: FakeClock, lasts: Decision
) -> None:
    journal.record_alerts([make_alert()])
    journal.record_alerts([make_alert(firing=False)])
    journal.record_decisions([(only(journal), lasts)])
    assert not only(journal).is_over
    clock.pass_by(SAME_OUTAGE_SECONDS + 1)
    journal.record_alerts([make_alert(starts_at=clock.now())])
    again = only(journal)
    assert (again.id, again.starts_at, again.resolved) == (1, clock.now(), False)


def test_a_call_that_no_stall_repeats_ends_with_its_alert(
    journal: Journal, clock: FakeClock
) -> None:
    journal.record_alerts([make_alert()])
    journal.record_decisions([(only(journal), Decision(Verdict.REFUSE, "processes_differ"))])
    journal.record_alerts([make_alert(firing=False)])
    assert only(journal).is_over
    clock.pass_by(SAME_OUTAGE_SECONDS + 1)
    journal.record_alerts([make_alert(starts_at=clock.now())])
    assert [one.id for one in journal.open_incidents()] == [1, 2]


@pytest.mark.parametrize("reason", ["managed_elsewhere", "held"])
@pytest.mark.parametrize("is_closed", [False, True])
def test_an_alert_that_ends_for_a_moment_while_nobody_acts_is_the_same_incident(
    journal: Journal, clock: FakeClock, tmp_path: Path, reason: Reason, is_closed: bool
) -> None:
    """A scrape was lost: its worker is as dead as before."""
    journal.record_alerts([make_alert()])
    journal.record_decisions([(only(journal), Decision(Verdict.WAIT, reason))])
    clock.pass_by(90)
    journal.record_alerts([make_alert(firing=False)])
    if is_closed:
        journal.record_decisions([(only(journal), Decision(Verdict.REFUSE, "resolved"))])
    clock.pass_by(20)
    journal.record_alerts([make_alert(starts_at=clock.now())])
    again = only(journal)
    assert (again.id, again.starts_at, again.resolved) == (1, clock.now(), False)
    assert again.blocked_since == NOW
    with open_journal(tmp_path / "journal.db") as db:
        (found,) = read_incidents(db, 0.0)
    assert (found.starts_at, found.closed) == (NOW, None)


@pytest.mark.parametrize("reason", ["condition_cleared", "observe_mode", "stopped"])
def test_an_alert_on_which_nobody_had_to_act_is_another_incident_when_it_fires_again(
    journal: Journal, clock: FakeClock, reason: Reason
) -> None:
    journal.record_alerts([make_alert()])
    for decision in (Decision(Verdict.WAIT, reason), Decision(Verdict.REFUSE, "resolved")):
        journal.record_decisions([(only(journal), decision)])
    clock.pass_by(20)
    journal.record_alerts([make_alert(starts_at=clock.now())])
    assert only(journal).id == 2


@pytest.mark.parametrize(
    "resumed", [{}, {"run": "demo"}, {"run": "demo", "worker": "rollout-0"}, {"left": [2]}]
)
def test_what_was_given_up_is_another_incident_after_a_resume(
    journal: Journal, clock: FakeClock, resumed: dict[str, Any]
) -> None:
    journal.record_alerts([make_alert()])
    journal.record_decisions([(only(journal), Decision(Verdict.REFUSE, "ladder_exhausted"))])
    journal.record_alerts([make_alert(firing=False)])
    clock.pass_by(30)
    for scope in ({"run": "second"}, {"run": "demo", "worker": "trainer"}, {"left": [2, 1]}):
        journal.record_event("resume", **scope)
    assert journal.given_up_before() == (ROLLOUT,)
    journal.record_alerts([make_alert(starts_at=clock.now())])
    assert journal.open_incidents() == ()
    journal.record_alerts([make_alert(starts_at=clock.now(), firing=False)])
    clock.pass_by(30)
    journal.record_event("resume", **resumed)
    assert journal.given_up_before() == ()
    journal.record_alerts([make_alert(starts_at=clock.now())])
    assert only(journal).id == 2


def test_a_while_after_the_end_it_is_another_incident(journal: Journal, clock: FakeClock) -> None:
    tried(journal, "not_healed")
    clock.pass_by(SAME_OUTAGE_SECONDS + 1)
    journal.record_alerts([make_alert(starts_at=clock.now())])
    assert only(journal).id == 2


def test_a_resolved_alert_stays_open_until_that_is_decided(journal: Journal) -> None:
    journal.record_alerts([make_alert()])
    journal.record_alerts([make_alert(firing=False), make_alert(firing=False)])
    assert only(journal).resolved
    assert kinds(journal) == ["alert", "resolved"]
    journal.record_decisions([(only(journal), Decision(Verdict.REFUSE, "resolved"))])
    assert journal.open_incidents() == ()


def test_a_resolved_alert_that_was_never_received_firing_is_ignored(journal: Journal) -> None:
    journal.record_alerts([make_alert(firing=False)])
    assert journal.open_incidents() == ()
    assert kinds(journal) == []


@pytest.mark.parametrize("reason", ["resolved", "alert_stale"])
def test_an_alert_that_still_fires_opens_again_what_was_believed_over(
    journal: Journal, reason: str
) -> None:
    journal.record_alerts([make_alert()])
    if reason == "resolved":
        journal.record_alerts([make_alert(firing=False)])
    journal.record_decisions([(only(journal), Decision(Verdict.REFUSE, reason))])  # type: ignore[arg-type]
    assert journal.open_incidents() == ()
    journal.record_alerts([make_alert()])
    assert not only(journal).resolved
    assert kinds(journal)[-1] == "alert"
    assert journal.record_decisions([(only(journal), Decision(Verdict.WAIT, "cooldown"))])


def test_a_resolution_that_came_late_does_not_close_it_for_good(journal: Journal) -> None:
    journal.record_alerts([make_alert()])
    journal.record_alerts([make_alert(firing=False)])
    believed = only(journal)
    journal.record_alerts([make_alert()])
    journal.record_decisions([(believed, Decision(Verdict.REFUSE, "resolved"))])
    journal.record_alerts([make_alert()])
    assert not only(journal).resolved


def test_an_alert_that_was_given_up_is_not_opened_again(journal: Journal, tmp_path: Path) -> None:
    journal.record_alerts([make_alert()])
    target = make_config(tmp_path).targets[0]
    journal.record_decisions(
        [(only(journal), Decision(Verdict.REFUSE, "attempts_exhausted", target))]
    )
    journal.record_alerts([make_alert(firing=False)])
    journal.record_alerts([make_alert()])
    assert journal.open_incidents() == ()
    assert journal.given_up(NOW - 60) == (ROLLOUT,)


def test_the_heartbeat_is_a_moment_and_no_incident(journal: Journal, clock: FakeClock) -> None:
    assert journal.timestamps() == {}
    journal.record_alerts([], heartbeat=True)
    clock.pass_by(15)
    journal.record_alerts([], heartbeat=True)
    assert journal.timestamps() == {"watchdog": NOW + 15}
    assert journal.open_incidents() == ()


@pytest.mark.parametrize(
    "text", ["nul\0inside", "'; DROP TABLE incident; --", "\U0001f525", "a\nb"]
)
def test_hostile_text_comes_back_as_it_went_in(journal: Journal, text: str) -> None:
    journal.record_alerts([make_alert(alertname=text, run=text, worker=text, remediation=text)])
    incident = only(journal)
    assert (incident.alert, incident.run, incident.worker) == (text, text, text)
    (event,) = journal.newest_events(1)
    assert (event.alert, event.worker) == (text, text)


# deciding


def test_only_a_decision_that_is_news_is_written(journal: Journal) -> None:
    journal.record_alerts([make_alert()])
    assert journal.record_decisions([(only(journal), Decision(Verdict.WAIT, "cooldown"))])
    assert not journal.record_decisions(
        [(only(journal), Decision(Verdict.WAIT, "cooldown", detail="again"))]
    )
    assert journal.record_decisions([(only(journal), Decision(Verdict.WAIT, "silenced"))])
    assert journal.record_decisions([(only(journal), Decision(Verdict.WAIT, "cooldown"))])
    assert kinds(journal) == ["alert", "decision", "decision", "decision"]
    assert journal.counters()["decisions"] == {("wait", "cooldown"): 2, ("wait", "silenced"): 1}


def test_the_decision_after_an_action_is_news_though_it_reads_the_same(journal: Journal) -> None:
    journal.record_alerts([make_alert()])
    restart = Decision(Verdict.ACT, "restart")
    assert journal.record_decisions([(only(journal), restart)])
    journal.record_intent(only(journal).id, ROLLOUT, "restart", PROCESSES)
    assert journal.record_decisions([(only(journal), restart)])


def test_giving_up_closes_the_incident_and_is_shown_while_the_alert_stands(
    journal: Journal, tmp_path: Path
) -> None:
    target = make_config(tmp_path).targets[0]
    journal.record_alerts([make_alert(run="", worker="")])
    journal.record_decisions(
        [(only(journal), Decision(Verdict.REFUSE, "attempts_exhausted", target))]
    )
    assert journal.open_incidents() == ()
    assert journal.given_up(NOW) == (ROLLOUT,)
    assert journal.given_up(NOW, {ROLLOUT: NOW}) == (ROLLOUT,)
    assert journal.given_up(NOW, {ROLLOUT: NOW + 1}) == ()  # by an operator, since
    assert journal.given_up(NOW + 1) == ()
    assert journal.counters()["outcomes"] == {("demo", "rollout-0", "gave_up"): 1}
    journal.record_alerts([make_alert(firing=False)])
    assert journal.given_up(NOW) == ()


def test_what_fires_again_after_a_start_by_an_operator_needs_one_again(
    journal: Journal, clock: FakeClock
) -> None:
    journal.record_alerts([make_alert()])
    journal.record_decisions([(only(journal), Decision(Verdict.REFUSE, "attempts_exhausted"))])
    started = {ROLLOUT: NOW + 30}
    clock.pass_by(60)
    journal.record_alerts([make_alert(firing=False)])
    assert journal.given_up(NOW, started) == journal.given_up_before(started) == ()
    clock.pass_by(60)
    again = clock.now()
    journal.record_alerts([make_alert(starts_at=again)])
    assert journal.open_incidents() == ()  # nothing handles it
    assert journal.given_up(NOW, started) == (ROLLOUT,)
    journal.record_alerts([make_alert(starts_at=again, firing=False)])
    assert journal.given_up_before(started) == (ROLLOUT,)
    assert journal.given_up_before({ROLLOUT: again + 1}) == ()


def test_since_when_something_is_reported_is_known(journal: Journal, clock: FakeClock) -> None:
    journal.record_alerts([make_alert()])
    journal.record_decisions([(only(journal), Decision(Verdict.WAIT, "saving"))])
    clock.pass_by(30)
    journal.record_decisions([(only(journal), Decision(Verdict.WAIT, "saving"))])
    assert (only(journal).last_decision, only(journal).last_decided_at) == ("wait saving", NOW)
    journal.record_decisions([(only(journal), Decision(Verdict.WAIT, "cooldown"))])
    assert only(journal).last_decided_at == NOW + 30


@pytest.mark.parametrize("reason", sorted(GIVEN_UP))
def test_giving_up_after_the_alert_is_over_pages_the_on_call_all_the_same(
    journal: Journal, clock: FakeClock, tmp_path: Path, reason: Reason
) -> None:
    target = make_config(tmp_path).targets[0]
    journal.record_alerts([make_alert()])
    journal.record_alerts([make_alert(firing=False)])
    clock.pass_by(1000)
    journal.record_decisions([(only(journal), Decision(Verdict.REFUSE, reason, target))])
    assert journal.given_up(NOW + 900) == (ROLLOUT,)
    assert journal.given_up(NOW + 1001) == ()
    assert journal.counters()["outcomes"] == {("demo", "rollout-0", "gave_up"): 1}


@pytest.mark.parametrize("reason", sorted(NEEDS_OPERATOR))
def test_what_cannot_be_done_as_things_stand_pages_the_on_call_until_it_can(
    journal: Journal, tmp_path: Path, reason: Reason
) -> None:
    target = make_config(tmp_path).targets[0]
    journal.record_alerts([make_alert(run="", worker="")])
    journal.record_decisions([(only(journal), Decision(Verdict.REFUSE, reason, target))])
    assert journal.given_up(NOW + 10_000) == (ROLLOUT,)
    assert len(journal.open_incidents()) == 1
    journal.record_decisions([(only(journal), Decision(Verdict.WAIT, "cooldown", target))])
    assert journal.given_up(0) == ()


def test_each_line_names_the_worker_that_it_is_about(journal: Journal, tmp_path: Path) -> None:
    config = make_config(tmp_path, "demo/rollout-0", "demo/trainer")
    journal.record_alerts([make_alert()])
    for rung, target in enumerate(config.targets):
        journal.record_decisions(
            [(only(journal), Decision(Verdict.ACT, "restart", target, rung=rung))]
        )
        journal.record_result(
            journal.record_intent(1, target.key, "restart", (), rung=rung), "done"
        )
    reported = [(event.kind, event.worker) for event in reversed(journal.newest_events(10))]
    assert reported == [
        ("alert", "rollout-0"),
        *[(kind, "rollout-0") for kind in ("decision", "intent", "result")],
        *[(kind, "trainer") for kind in ("decision", "intent", "result")],
    ]


# acting


def test_an_intent_is_unfinished_until_its_outcome_is_known(journal: Journal) -> None:
    number = intended(journal)
    (left,) = journal.open_actions()
    assert (left.id, left.key, left.processes) == (number, ROLLOUT, frozenset(PROCESSES))
    assert (left.last_step, left.result) == (None, None)
    journal.record_step(number, "stop", processes=[11])
    journal.record_step(number, "start", command=["x"])
    assert journal.open_actions()[0].last_step == "start"
    journal.record_result(number, "done")
    assert journal.open_actions()[0].result == "done"
    journal.record_outcome(number, "healed", seconds=3.0)
    assert journal.open_actions() == ()
    assert kinds(journal) == ["alert", "intent", "stop", "start", "result", "outcome"]
    counters = journal.counters()
    assert counters["actions"] == {("demo", "rollout-0", "restart", "done"): 1}
    assert counters["outcomes"] == {("demo", "rollout-0", "healed"): 1}


def test_a_failed_action_is_unfinished_until_its_outcome_is_written(journal: Journal) -> None:
    number = intended(journal)
    journal.record_result(number, "failed", error="x")
    assert journal.open_actions()[0].result == "failed"
    journal.record_outcome(number, "not_healed")
    assert journal.open_actions() == ()


def test_an_interrupted_action_is_at_its_end(journal: Journal, clock: FakeClock) -> None:
    number = intended(journal)
    journal.record_step(number, "stop")
    clock.pass_by(5)
    journal.record_result(number, "interrupted", found="ended")
    assert journal.open_actions() == ()
    assert journal.past_actions(NOW) == (
        PastAction(
            1,
            ROLLOUT,
            NOW,
            NOW + 5,
            result="interrupted",
            result_at=NOW + 5,
            alert="TrainingWorkerMemoryOverLimit",
        ),
    )


def test_an_action_cut_short_before_its_first_step_costs_no_attempt(journal: Journal) -> None:
    number = intended(journal)
    assert journal.past_actions(NOW) == (
        PastAction(1, ROLLOUT, NOW, None, alert="TrainingWorkerMemoryOverLimit"),
    )
    journal.record_result(number, "interrupted")
    assert journal.past_actions(NOW) == ()


def test_an_action_under_way_is_reported_however_long_ago_it_began(
    journal: Journal, clock: FakeClock
) -> None:
    number = intended(journal)
    clock.pass_by(10_000)
    assert journal.past_actions(clock.now() - 60) == (
        PastAction(1, ROLLOUT, NOW, None, alert="TrainingWorkerMemoryOverLimit"),
    )
    journal.record_result(number, "done")
    journal.record_outcome(number, "healed")
    assert journal.past_actions(clock.now() - 60) == (
        PastAction(
            *(1, ROLLOUT, NOW, NOW + 10_000),
            healed=True,
            result="done",
            result_at=NOW + 10_000,
            alert="TrainingWorkerMemoryOverLimit",
        ),
    )


def test_actions_that_no_budget_counts_are_reported_for_open_incidents_and_the_last_of_each_target(
    journal: Journal, clock: FakeClock
) -> None:
    trainer = WorkerKey("demo", "trainer")
    for index in range(LAST_ACTIONS + 5):
        journal.record_alerts([make_alert(starts_at=NOW + index)])
        number = journal.record_intent(index + 1, ROLLOUT, "restart", PROCESSES, rung=1, step=7)
        journal.record_step(number, "stop")
        journal.record_result(number, "done")
        journal.record_outcome(number, "healed")
        if index != 1:
            closing = next(one for one in journal.open_incidents() if one.id == index + 1)
            journal.record_decisions([(closing, Decision(Verdict.REFUSE, "resolved"))])
    journal.record_intent(1, trainer, "restart", PROCESSES, checkpoint=5)
    clock.pass_by(10_000)
    reported = journal.past_actions(clock.now() - 60)
    assert [one.incident for one in reported if one.key == ROLLOUT] == [2, *range(6, 26)]
    (last,) = (one for one in reported if one.key == trainer)
    assert (last.ended_at, last.checkpoint) == (None, 5)
    assert {(one.rung, one.step) for one in reported if one.key == ROLLOUT} == {(1, 7)}


def test_the_oldest_action_under_way_is_known(journal: Journal, clock: FakeClock) -> None:
    assert journal.oldest_action() is None
    first = intended(journal)
    clock.pass_by(5)
    second = journal.record_intent(1, WorkerKey("demo", "trainer"), "restart", ())
    assert journal.oldest_action() == NOW
    journal.record_result(first, "done")
    assert journal.oldest_action() == NOW
    journal.record_outcome(first, "healed")
    assert journal.oldest_action() == NOW + 5
    journal.record_result(second, "interrupted")
    assert journal.oldest_action() is None


# remembering


def test_descendants_of_a_root_are_kept_until_they_are_replaced(journal: Journal) -> None:
    root, other, child = Identity(11, 100), Identity(21, 200), Identity(12, 101)
    trainer = WorkerKey("demo", "trainer")
    descendants_by_root = {root: frozenset({root, child}), other: frozenset({other})}
    journal.save_descendants(
        "a", {ROLLOUT: descendants_by_root, trainer: {other: frozenset({other})}}
    )
    assert journal.load_descendants("a")[ROLLOUT] == descendants_by_root
    assert journal.load_descendants("b") == {}
    journal.save_descendants("a", {ROLLOUT: {root: frozenset({child})}})
    assert journal.load_descendants("a") == {
        ROLLOUT: {root: frozenset({child})},
        trainer: {other: frozenset({other})},
    }
    journal.save_descendants("b", {ROLLOUT: {}})
    assert list(journal.load_descendants("a")) == [trainer]


# lasting


def all_reported(journal: Journal) -> tuple[object, ...]:
    return (
        journal.open_incidents(),
        journal.open_actions(),
        journal.past_actions(NOW),
        journal.counters(),
        journal.timestamps(),
        journal.newest_events(10),
    )


def test_everything_survives_a_reopening(tmp_path: Path, clock: FakeClock) -> None:
    journal = Journal(tmp_path / "journal.db", clock=clock)
    number = intended(journal)
    journal.record_step(number, "stop")
    journal.record_alerts([], heartbeat=True)
    before = all_reported(journal)
    journal.close()
    journal = Journal(tmp_path / "journal.db", clock=clock)
    assert all_reported(journal) == before
    journal.close()


WRITE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from trainwarden_remediator.journal.journal import Journal
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager.webhook_payload import Alert
journal = Journal(Path(sys.argv[1]), clock=lambda: 5.0)
journal.record_alerts([Alert("0" * 16, 1.0, True, {"alertname": "A"})])
journal.record_intent(1, WorkerKey("demo", "rollout-0"), "restart", [])
journal._file.connection.execute("BEGIN IMMEDIATE")
journal._file.connection.execute("UPDATE incident SET alert = 'B'")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_committed_survives_a_kill_and_what_was_not_does_not(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "journal.db"
    died = subprocess.run([sys.executable, "-c", WRITE_AND_DIE, path], check=False)
    assert died.returncode == -9
    journal = Journal(path, clock=clock)
    assert only(journal).alert == "A"
    assert [left.key for left in journal.open_actions()] == [ROLLOUT]
    journal.close()


def test_a_second_remediator_is_locked_out_until_the_first_is_gone(
    tmp_path: Path, clock: FakeClock
) -> None:
    first = Journal(tmp_path / "journal.db", clock=clock)
    with pytest.raises(JournalError, match="another remediator is using it"):
        Journal(tmp_path / "journal.db", clock=clock)
    first.record_alerts([make_alert()])
    first.close()
    second = Journal(tmp_path / "journal.db", clock=clock)
    assert only(second).alert
    second.close()


def test_reading_beside_a_running_writer_sees_each_event_once_and_in_order(
    journal: Journal, tmp_path: Path
) -> None:
    journal.record_alerts([make_alert()])
    incident = only(journal)

    def write() -> None:
        for index in range(60):
            journal.record_decisions(
                [(incident, Decision(Verdict.WAIT, "busy" if index % 2 else "cooldown"))]
            )

    writer = threading.Thread(target=write)
    writer.start()
    reader = connect(tmp_path / "journal.db", mode="ro")
    seen: list[int] = []
    while True:
        over = not writer.is_alive()
        seen += [event.id for event in read_events(reader, seen[-1] if seen else 0)]
        if over:
            break
    writer.join()
    assert seen == list(range(1, 62))
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM event")
    reader.close()


def test_many_threads_may_write_at_once(journal: Journal) -> None:
    alerts = [make_alert(fingerprint=f"{index:016x}") for index in range(20)]
    threads = [threading.Thread(target=journal.record_alerts, args=(alerts,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(journal.open_incidents()) == 20
    assert journal.counters()["alerts_received"] == {("firing",): 160}


# failing


def full(journal: Journal) -> None:
    """As if the disk were full: the file may not grow by one page more."""
    pages = journal._file.connection.execute("PRAGMA page_count").fetchone()[0]
    journal._file.connection.execute(f"PRAGMA max_page_count = {pages}")


def test_on_a_full_disk_no_row_is_half_written(journal: Journal) -> None:
    journal.record_alerts([make_alert()])
    full(journal)
    before = (journal.newest_events(10), journal.counters(), journal.open_incidents())
    many = [make_alert(fingerprint=f"{index:016x}", padding="x" * 900) for index in range(50)]
    with pytest.raises(JournalError, match="full"):
        journal.record_alerts(many, heartbeat=True)
    assert before == (journal.newest_events(10), journal.counters(), journal.open_incidents())
    assert journal.timestamps() == {}
    journal._file.connection.execute("PRAGMA max_page_count = 1000000")
    journal.record_alerts(many)
    assert len(journal.open_incidents()) == 51


def test_an_intent_that_cannot_be_written_is_refused_whole(journal: Journal) -> None:
    journal.record_alerts([make_alert()])
    full(journal)
    crowd = [Identity(1_000_000 + index, 123_456_789) for index in range(5000)]
    with pytest.raises(JournalError):
        journal.record_intent(1, ROLLOUT, "restart", crowd)
    assert journal.open_actions() == ()
    assert kinds(journal) == ["alert"]


def test_a_closed_journal_says_so_in_its_own_words(tmp_path: Path, clock: FakeClock) -> None:
    journal = Journal(tmp_path / "journal.db", clock=clock)
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.record_alerts([make_alert()])
    with pytest.raises(JournalError, match="closed"):
        journal.open_incidents()


def test_an_action_that_is_not_there_changes_nothing(journal: Journal) -> None:
    with pytest.raises(JournalError):
        journal.record_intent(99, WorkerKey("demo", "x"), "restart", ())
    assert journal.open_actions() == ()


LOOP = make_alert(
    starts_at=NOW + 30,
    fingerprint="2" * 16,
    alertname="TrainingWorkerRestartLoop",
    remediation="hold_restarts",
)
GONE = make_alert(alertname="TrainingWorkerGone", remediation="start_missing_worker")


def fail_to_heal(journal: Journal, outcome: Literal["healed", "not_healed"] = "not_healed") -> None:
    """Receives that a worker is gone, and restarts it."""
    journal.record_alerts([GONE])
    action = journal.record_intent(1, ROLLOUT, "restart", (), attempt=(1, 3))
    journal.record_result(action, "done", started_by="trainwarden", processes=[7])
    journal.record_outcome(action, outcome, seen="it ended soon after its start", seconds=1)


def test_the_loop_of_a_workers_own_restarts_is_part_of_its_outage(journal: Journal) -> None:
    fail_to_heal(journal)
    journal.record_alerts([LOOP])
    gone, loop = journal.open_incidents()
    assert (gone.part_of, loop.part_of, loop.outage) == (None, gone.id, gone.id)
    assert journal.count_open() == 1
    assert journal.first_incidents(1) == (gone, loop)
    assert {event.incident for event in journal.newest_events(100)} == {gone.id}
    assert [event.alert for event in read_events(journal.file.connection, incident=loop.id)] == [
        *["TrainingWorkerGone"] * 4,
        "TrainingWorkerRestartLoop",
    ]
    (record,) = read_incidents(journal.file.connection, NOW)
    assert (record.id, record.alert, len(record.repairs)) == (1, "TrainingWorkerGone", 1)
    assert [one.alert for one in record.alerts] == [
        "TrainingWorkerGone",
        "TrainingWorkerRestartLoop",
    ]


def test_a_loop_of_another_worker_or_after_a_healing_is_an_incident_of_its_own(
    journal: Journal,
) -> None:
    fail_to_heal(journal)
    other = {**LOOP.labels, "worker": "trainer"}
    journal.record_alerts([replace(LOOP, labels=other, fingerprint="3" * 16)])
    late = LOOP.starts_at + 2 * SAME_OUTAGE_SECONDS
    journal.record_alerts([replace(LOOP, starts_at=late, fingerprint="4" * 16)])
    assert journal.count_open() == 3


def test_a_loop_after_a_healing_is_an_incident_of_its_own(journal: Journal) -> None:
    fail_to_heal(journal, "healed")
    journal.record_alerts([LOOP])
    assert journal.count_open() == 2


def test_a_worker_that_is_gone_after_a_loop_is_part_of_its_outage(journal: Journal) -> None:
    journal.record_alerts([LOOP])
    journal.record_alerts([replace(GONE, starts_at=NOW + 300)])
    assert [one.outage for one in journal.open_incidents()] == [1, 1]


def full_disk(number: int, starts_at: float, **labels: str) -> Alert:
    """A disk that is full in bytes, or in checkpoints of a run: each is an alert of its own."""
    known: dict[str, Any] = {"alertname": "TrainingDiskFilling", "worker": "", "path": "/ckpt"}
    known |= {"remediation": "hold_restarts", **labels}
    return make_alert(fingerprint=f"{number:016x}", starts_at=starts_at, **known)


def test_one_full_disk_is_one_outage(journal: Journal, clock: FakeClock) -> None:
    journal.record_alerts([full_disk(1, NOW)])
    journal.record_alerts([full_disk(2, NOW + 15, checkpoint="trainer")])
    journal.record_alerts([full_disk(3, NOW + 15, path="/other")])
    journal.record_alerts([full_disk(4, NOW + 15, run="other")])
    assert [one.outage for one in journal.open_incidents()] == [1, 1, 3, 4]
    clock.pass_by(60)
    journal.record_alerts([replace(full_disk(1, NOW), firing=False)])
    clock.pass_by(5)
    # still full in checkpoints, and then full again after it had room
    journal.record_alerts([full_disk(1, clock.now())])
    assert journal.open_incidents()[-1].outage == 1
    for one in (full_disk(2, NOW + 15), full_disk(1, clock.now())):
        journal.record_alerts([replace(one, firing=False)])
    clock.pass_by(5)
    journal.record_alerts([full_disk(2, clock.now(), checkpoint="trainer")])
    assert journal.open_incidents()[-1].part_of is None


@pytest.mark.parametrize("deferred", [True, False])
@pytest.mark.parametrize(("seconds", "parts"), [(0, [None, 1]), (100, [None, None])])
def test_only_what_begins_during_an_action_is_part_of_its_outage(
    journal: Journal, clock: FakeClock, seconds: float, parts: list[int | None], *, deferred: bool
) -> None:
    """An action that was deferred or interrupted has ended without an outcome."""
    action = intended(journal)
    clock.pass_by(5)
    if deferred:
        journal.record_not_attempted(action, "another remediator")
    else:
        journal.record_result(action, "interrupted", found="untouched")
    begins = clock.now() + seconds
    clock.pass_by(seconds)
    journal.record_alerts([make_alert(starts_at=begins, fingerprint="5" * 16, alertname="Other")])
    assert [one.part_of for one in journal.open_incidents()] == parts


@pytest.mark.parametrize(
    ("since", "outcome", "worker", "outage"),
    [
        (NOW - 60, "not_healed", "rollout-0", 1),
        (NOW - 60, "healed", "rollout-0", 2),
        (NOW - 60, "not_healed", "rollout-1", 2),
        (NOW + 60, "not_healed", "rollout-0", 2),  # the run has made a new step in between
        (None, "not_healed", "rollout-0", 2),
    ],
)
def test_what_is_acted_upon_again_in_one_interruption_of_the_run_is_one_outage(
    journal: Journal, *, since: float | None, outcome: Any, worker: str, outage: int
) -> None:
    """The alert of a stall comes again only once the run is over its limit since the restart."""
    journal.record_alerts([make_alert()])
    first = journal.record_intent(1, ROLLOUT, "restart", (), interrupted_since=NOW - 60)
    journal.record_result(first, "done")
    journal.record_outcome(first, outcome)
    journal.record_alerts([make_alert(firing=False)])
    journal.record_decisions([(only(journal), Decision(Verdict.REFUSE, "resolved"))])
    later = make_alert(starts_at=NOW + 1200, worker=worker, fingerprint="1" * 16)
    journal.record_alerts([later])
    assert only(journal).outage == 2
    key = WorkerKey("demo", worker)
    journal.record_intent(2, key, "restart", (), interrupted_since=since)
    assert only(journal).outage == outage
    assert {event.incident for event in journal.newest_events(99)} == {1, outage}


def test_the_first_incident_of_an_outage_may_be_deleted_first(journal: Journal) -> None:
    fail_to_heal(journal)
    journal.record_alerts([LOOP])
    with journal.file.transaction() as db:
        db.execute("DELETE FROM action WHERE incident = 1")
        db.execute("DELETE FROM incident WHERE id = 1")
    assert [one.outage for one in journal.open_incidents()] == [2]


def test_an_action_says_which_of_its_attempts_it_is(journal: Journal) -> None:
    fail_to_heal(journal)
    (intent,) = [one for one in journal.newest_events(9) if one.kind == "intent"]
    assert describe(intent) == "action 1: about to start the worker, attempt 1 of 3"
    (action,) = journal.last_actions(1)
    assert (action.attempt, action.attempts) == (1, 3)


def test_an_action_says_how_often_its_worker_was_restarted_within_a_day(
    journal: Journal, clock: FakeClock
) -> None:
    """Where new steps renew the attempts, each of them is the first of three."""
    expected = ["", "", "restart 2 in 24 h", "restart 3 in 24 h"]
    for seconds, nth in zip((0, 86_400, 60, 60), expected, strict=True):
        clock.pass_by(seconds)
        journal.record_alerts([make_alert(starts_at=clock.now())])
        incident = journal.open_incidents()[-1].id
        number = journal.record_intent(incident, ROLLOUT, "restart", (), attempt=(1, 3))
        shown = f", attempt 1 of 3{f', {nth}' if nth else ''}"
        (intent,) = (one for one in journal.newest_events(1) if one.kind == "intent")
        assert describe(intent).endswith(shown)
        journal.record_result(number, "done")
        (action,) = journal.last_actions(1)
        assert describe_attempt(action.attempt, action.attempts, action.restarts) == shown


def test_neither_an_action_that_did_nothing_nor_one_of_another_worker_counts_as_a_restart(
    journal: Journal,
) -> None:
    journal.record_alerts([make_alert()])
    for key, attempted in ((ROLLOUT, False), (TRAINER, True), (ROLLOUT, True)):
        number = journal.record_intent(1, key, "restart", (), attempt=(1, 3))
        if not attempted:
            journal.record_not_attempted(number, "the restart was refused")
    (action,) = journal.last_actions(1)
    assert action.restarts == 1


def test_a_detail_that_only_repeats_its_reason_is_left_out() -> None:
    repeated = "a checkpoint is being written, or settling"
    assert describe_reason("saving", repeated) == f"{repeated}: waiting"
    assert describe_reason("saving", "of ppo").endswith(": waiting (of ppo)")
