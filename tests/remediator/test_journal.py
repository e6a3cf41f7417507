from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.remediator.conftest import NOW, ROLLOUT, FakeClock, make_alert, make_config

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.decision import (
    GIVEN_UP,
    STUCK,
    Decision,
    Incident,
    PastAction,
    Reason,
    Verdict,
)
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.journalfile import connect
from trainwarden_remediator.records import read_events
from trainwarden_remediator.telling import LAST_ACTIONS

PROCESSES = (Identity(11, 100), Identity(12, 101))


def kinds(journal: Journal) -> list[str]:
    return [event.kind for event in reversed(journal.newest_events(100))]


def only(journal: Journal) -> Incident:
    (incident,) = journal.open_incidents()
    return incident


def intended(journal: Journal) -> int:
    journal.hear([make_alert()])
    return journal.intend(only(journal).id, ROLLOUT, "restart", PROCESSES)


# hearing


def test_an_alert_becomes_an_open_incident(journal: Journal) -> None:
    journal.hear([make_alert(starts_at=NOW - 30)])
    assert only(journal) == Incident(
        id=1,
        fingerprint="0123456789abcdef",
        starts_at=NOW - 30,
        alert="TrainingWorkerMemoryOverLimit",
        run="demo",
        worker="rollout-0",
        remediation="restart_leaking_worker",
        last_heard=NOW,
        resolved=False,
        labels=make_alert().labels,
    )


def test_a_repeated_delivery_is_the_same_incident(journal: Journal, clock: FakeClock) -> None:
    journal.hear([make_alert()])
    clock.pass_by(60)
    journal.hear([make_alert(), make_alert()])
    assert only(journal).last_heard == NOW + 60
    assert kinds(journal) == ["alert"]
    assert journal.tallies()["alerts_received"] == {("firing",): 3}


def test_the_same_alert_with_a_later_start_is_another_incident(journal: Journal) -> None:
    journal.hear([make_alert(starts_at=NOW), make_alert(starts_at=NOW + 1)])
    assert [incident.starts_at for incident in journal.open_incidents()] == [NOW, NOW + 1]


def test_a_resolved_alert_stays_open_until_that_is_decided(journal: Journal) -> None:
    journal.hear([make_alert()])
    journal.hear([make_alert(firing=False), make_alert(firing=False)])
    assert only(journal).resolved
    assert kinds(journal) == ["alert", "resolved"]
    journal.decided(only(journal), Decision(Verdict.REFUSE, "resolved"))
    assert journal.open_incidents() == ()


def test_a_resolved_alert_that_was_never_heard_firing_is_nothing(journal: Journal) -> None:
    journal.hear([make_alert(firing=False)])
    assert journal.open_incidents() == ()
    assert kinds(journal) == []


@pytest.mark.parametrize("reason", ["resolved", "forgotten"])
def test_an_alert_that_still_fires_opens_again_what_was_believed_over(
    journal: Journal, reason: str
) -> None:
    journal.hear([make_alert()])
    if reason == "resolved":
        journal.hear([make_alert(firing=False)])
    journal.decided(only(journal), Decision(Verdict.REFUSE, reason))  # type: ignore[arg-type]
    assert journal.open_incidents() == ()
    journal.hear([make_alert()])
    assert not only(journal).resolved
    assert kinds(journal)[-1] == "alert"
    assert journal.decided(only(journal), Decision(Verdict.WAIT, "cooldown"))


def test_a_resolution_that_came_late_does_not_close_it_for_good(journal: Journal) -> None:
    journal.hear([make_alert()])
    journal.hear([make_alert(firing=False)])
    believed = only(journal)
    journal.hear([make_alert()])
    journal.decided(believed, Decision(Verdict.REFUSE, "resolved"))
    journal.hear([make_alert()])
    assert not only(journal).resolved


def test_an_alert_that_was_given_up_is_not_opened_again(journal: Journal, tmp_path: Path) -> None:
    journal.hear([make_alert()])
    target = make_config(tmp_path).targets[0]
    journal.decided(only(journal), Decision(Verdict.REFUSE, "attempts_exhausted", target))
    journal.hear([make_alert(firing=False)])
    journal.hear([make_alert()])
    assert journal.open_incidents() == ()
    assert journal.given_up(NOW - 60) == (ROLLOUT,)


def test_the_heartbeat_is_a_moment_and_no_incident(journal: Journal, clock: FakeClock) -> None:
    assert journal.moments() == {}
    journal.hear([], heartbeat=True)
    clock.pass_by(15)
    journal.hear([], heartbeat=True)
    assert journal.moments() == {"watchdog": NOW + 15}
    assert journal.open_incidents() == ()


@pytest.mark.parametrize(
    "text", ["nul\0inside", "'; DROP TABLE incident; --", "\U0001f525", "a\nb"]
)
def test_hostile_text_comes_back_as_it_went_in(journal: Journal, text: str) -> None:
    journal.hear([make_alert(alertname=text, run=text, worker=text, remediation=text)])
    incident = only(journal)
    assert (incident.alert, incident.run, incident.worker) == (text, text, text)
    (event,) = journal.newest_events(1)
    assert (event.alert, event.worker) == (text, text)


# deciding


def test_only_a_decision_that_is_news_is_written(journal: Journal) -> None:
    journal.hear([make_alert()])
    assert journal.decided(only(journal), Decision(Verdict.WAIT, "cooldown"))
    assert not journal.decided(only(journal), Decision(Verdict.WAIT, "cooldown", detail="again"))
    assert journal.decided(only(journal), Decision(Verdict.WAIT, "silenced"))
    assert journal.decided(only(journal), Decision(Verdict.WAIT, "cooldown"))
    assert kinds(journal) == ["alert", "decision", "decision", "decision"]
    assert journal.tallies()["decisions"] == {("wait", "cooldown"): 2, ("wait", "silenced"): 1}


def test_the_decision_after_an_action_is_news_though_it_reads_the_same(journal: Journal) -> None:
    journal.hear([make_alert()])
    restart = Decision(Verdict.ACT, "restart")
    assert journal.decided(only(journal), restart)
    journal.intend(only(journal).id, ROLLOUT, "restart", PROCESSES)
    assert journal.decided(only(journal), restart)


def test_giving_up_closes_the_incident_and_is_shown_while_the_alert_stands(
    journal: Journal, tmp_path: Path
) -> None:
    target = make_config(tmp_path).targets[0]
    journal.hear([make_alert(run="", worker="")])
    journal.decided(only(journal), Decision(Verdict.REFUSE, "attempts_exhausted", target))
    assert journal.open_incidents() == ()
    assert journal.given_up(NOW) == (ROLLOUT,)
    assert journal.given_up(NOW + 1) == ()
    assert journal.tallies()["outcomes"] == {("demo", "rollout-0", "gave_up"): 1}
    journal.hear([make_alert(firing=False)])
    assert journal.given_up(NOW) == ()


def test_since_when_something_is_said_is_known(journal: Journal, clock: FakeClock) -> None:
    journal.hear([make_alert()])
    journal.decided(only(journal), Decision(Verdict.WAIT, "saving"))
    clock.pass_by(30)
    journal.decided(only(journal), Decision(Verdict.WAIT, "saving"))
    assert (only(journal).said, only(journal).said_at) == ("wait saving", NOW)
    journal.decided(only(journal), Decision(Verdict.WAIT, "cooldown"))
    assert only(journal).said_at == NOW + 30


@pytest.mark.parametrize("reason", sorted(GIVEN_UP))
def test_giving_up_after_the_alert_is_over_calls_a_person_all_the_same(
    journal: Journal, clock: FakeClock, tmp_path: Path, reason: Reason
) -> None:
    target = make_config(tmp_path).targets[0]
    journal.hear([make_alert()])
    journal.hear([make_alert(firing=False)])
    clock.pass_by(1000)
    journal.decided(only(journal), Decision(Verdict.REFUSE, reason, target))
    assert journal.given_up(NOW + 900) == (ROLLOUT,)
    assert journal.given_up(NOW + 1001) == ()
    assert journal.tallies()["outcomes"] == {("demo", "rollout-0", "gave_up"): 1}


@pytest.mark.parametrize("reason", sorted(STUCK))
def test_what_cannot_be_done_as_things_stand_calls_a_person_until_it_can(
    journal: Journal, tmp_path: Path, reason: Reason
) -> None:
    target = make_config(tmp_path).targets[0]
    journal.hear([make_alert(run="", worker="")])
    journal.decided(only(journal), Decision(Verdict.REFUSE, reason, target))
    assert journal.given_up(NOW + 10_000) == (ROLLOUT,)
    assert len(journal.open_incidents()) == 1
    journal.decided(only(journal), Decision(Verdict.WAIT, "cooldown", target))
    assert journal.given_up(0) == ()


def test_each_line_names_the_worker_that_it_is_about(journal: Journal, tmp_path: Path) -> None:
    config = make_config(tmp_path, "demo/rollout-0", "demo/trainer")
    journal.hear([make_alert()])
    for rung, target in enumerate(config.targets):
        journal.decided(only(journal), Decision(Verdict.ACT, "restart", target, rung=rung))
        journal.finished(journal.intend(1, target.key, "restart", (), rung=rung), "done")
    told = [(event.kind, event.worker) for event in reversed(journal.newest_events(10))]
    assert told == [
        ("alert", "rollout-0"),
        *[(kind, "rollout-0") for kind in ("decision", "intent", "result")],
        *[(kind, "trainer") for kind in ("decision", "intent", "result")],
    ]


# acting


def test_an_intent_is_unfinished_until_its_outcome_is_known(journal: Journal) -> None:
    number = intended(journal)
    (left,) = journal.unfinished()
    assert (left.id, left.key, left.processes) == (number, ROLLOUT, frozenset(PROCESSES))
    assert (left.reached, left.result) == (None, None)
    journal.reached(number, "stop", processes=[11])
    journal.reached(number, "start", command=["x"])
    assert journal.unfinished()[0].reached == "start"
    journal.finished(number, "done")
    assert journal.unfinished()[0].result == "done"
    journal.verified(number, "healed", seconds=3.0)
    assert journal.unfinished() == ()
    assert kinds(journal) == ["alert", "intent", "stop", "start", "result", "outcome"]
    tallies = journal.tallies()
    assert tallies["actions"] == {("demo", "rollout-0", "restart", "done"): 1}
    assert tallies["outcomes"] == {("demo", "rollout-0", "healed"): 1}


def test_a_failed_action_is_unfinished_until_its_outcome_is_written(journal: Journal) -> None:
    number = intended(journal)
    journal.finished(number, "failed", error="x")
    assert journal.unfinished()[0].result == "failed"
    journal.verified(number, "not_healed")
    assert journal.unfinished() == ()


def test_an_interrupted_action_is_at_its_end(journal: Journal, clock: FakeClock) -> None:
    number = intended(journal)
    journal.reached(number, "stop")
    clock.pass_by(5)
    journal.finished(number, "interrupted", found="ended")
    assert journal.unfinished() == ()
    assert journal.past_actions(NOW) == (
        PastAction(1, ROLLOUT, NOW, NOW + 5, result="interrupted"),
    )


def test_an_action_cut_short_before_its_first_step_costs_no_attempt(journal: Journal) -> None:
    number = intended(journal)
    assert journal.past_actions(NOW) == (PastAction(1, ROLLOUT, NOW, None),)
    journal.finished(number, "interrupted")
    assert journal.past_actions(NOW) == ()


def test_an_action_under_way_is_told_however_long_ago_it_began(
    journal: Journal, clock: FakeClock
) -> None:
    number = intended(journal)
    clock.pass_by(10_000)
    assert journal.past_actions(clock.now() - 60) == (PastAction(1, ROLLOUT, NOW, None),)
    journal.finished(number, "done")
    journal.verified(number, "healed")
    assert journal.past_actions(clock.now() - 60) == (
        PastAction(1, ROLLOUT, NOW, NOW + 10_000, healed=True, result="done"),
    )


def test_actions_that_no_budget_counts_are_told_for_open_incidents_and_the_last_of_each_target(
    journal: Journal, clock: FakeClock
) -> None:
    trainer = WorkerKey("demo", "trainer")
    for index in range(LAST_ACTIONS + 5):
        journal.hear([make_alert(starts_at=NOW + index)])
        number = journal.intend(index + 1, ROLLOUT, "restart", PROCESSES, rung=1, step=7)
        journal.reached(number, "stop")
        journal.finished(number, "done")
        journal.verified(number, "healed")
        if index != 1:
            closing = next(one for one in journal.open_incidents() if one.id == index + 1)
            journal.decided(closing, Decision(Verdict.REFUSE, "resolved"))
    journal.intend(1, trainer, "restart", PROCESSES, checkpoint=5)
    clock.pass_by(10_000)
    told = journal.past_actions(clock.now() - 60)
    assert [one.incident for one in told if one.key == ROLLOUT] == [2, *range(6, 26)]
    (last,) = (one for one in told if one.key == trainer)
    assert (last.ended_at, last.checkpoint) == (None, 5)
    assert {(one.rung, one.step) for one in told if one.key == ROLLOUT} == {(1, 7)}


def test_the_oldest_action_under_way_is_known(journal: Journal, clock: FakeClock) -> None:
    assert journal.oldest_action() is None
    first = intended(journal)
    clock.pass_by(5)
    second = journal.intend(1, WorkerKey("demo", "trainer"), "restart", ())
    assert journal.oldest_action() == NOW
    journal.finished(first, "done")
    assert journal.oldest_action() == NOW
    journal.verified(first, "healed")
    assert journal.oldest_action() == NOW + 5
    journal.finished(second, "interrupted")
    assert journal.oldest_action() is None


# remembering


def test_what_stood_below_a_root_is_kept_until_it_is_told_anew(journal: Journal) -> None:
    root, other, child = Identity(11, 100), Identity(21, 200), Identity(12, 101)
    trainer = WorkerKey("demo", "trainer")
    kin = {root: frozenset({root, child}), other: frozenset({other})}
    journal.remember("a", {ROLLOUT: kin, trainer: {other: frozenset({other})}})
    assert journal.remembered("a")[ROLLOUT] == kin
    assert journal.remembered("b") == {}
    journal.remember("a", {ROLLOUT: {root: frozenset({child})}})
    assert journal.remembered("a") == {
        ROLLOUT: {root: frozenset({child})},
        trainer: {other: frozenset({other})},
    }
    journal.remember("b", {ROLLOUT: {}})
    assert list(journal.remembered("a")) == [trainer]


# lasting


def all_told(journal: Journal) -> tuple[object, ...]:
    return (
        journal.open_incidents(),
        journal.unfinished(),
        journal.past_actions(NOW),
        journal.tallies(),
        journal.moments(),
        journal.newest_events(10),
    )


def test_everything_survives_a_reopening(tmp_path: Path, clock: FakeClock) -> None:
    journal = Journal(tmp_path / "journal.db", clock=clock)
    number = intended(journal)
    journal.reached(number, "stop")
    journal.hear([], heartbeat=True)
    before = all_told(journal)
    journal.close()
    journal = Journal(tmp_path / "journal.db", clock=clock)
    assert all_told(journal) == before
    journal.close()


WRITE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from trainwarden_remediator.journal import Journal
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alerts import Alert
journal = Journal(Path(sys.argv[1]), clock=lambda: 5.0)
journal.hear([Alert("0" * 16, 1.0, True, {"alertname": "A"})])
journal.intend(1, WorkerKey("demo", "rollout-0"), "restart", [])
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
    assert [left.key for left in journal.unfinished()] == [ROLLOUT]
    journal.close()


def test_a_second_remediator_is_locked_out_until_the_first_is_gone(
    tmp_path: Path, clock: FakeClock
) -> None:
    first = Journal(tmp_path / "journal.db", clock=clock)
    with pytest.raises(JournalError, match="another remediator is using it"):
        Journal(tmp_path / "journal.db", clock=clock)
    first.hear([make_alert()])
    first.close()
    second = Journal(tmp_path / "journal.db", clock=clock)
    assert only(second).alert
    second.close()


def test_reading_beside_a_running_writer_sees_each_event_once_and_in_order(
    journal: Journal, tmp_path: Path
) -> None:
    journal.hear([make_alert()])
    incident = only(journal)

    def write() -> None:
        for index in range(60):
            journal.decided(incident, Decision(Verdict.WAIT, "busy" if index % 2 else "cooldown"))

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
    threads = [threading.Thread(target=journal.hear, args=(alerts,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(journal.open_incidents()) == 20
    assert journal.tallies()["alerts_received"] == {("firing",): 160}


# failing


def full(journal: Journal) -> None:
    """As if the disk were full: the file may not grow by one page more."""
    pages = journal._file.connection.execute("PRAGMA page_count").fetchone()[0]
    journal._file.connection.execute(f"PRAGMA max_page_count = {pages}")


def test_on_a_full_disk_nothing_is_half_written(journal: Journal) -> None:
    journal.hear([make_alert()])
    full(journal)
    before = (journal.newest_events(10), journal.tallies(), journal.open_incidents())
    many = [make_alert(fingerprint=f"{index:016x}", padding="x" * 900) for index in range(50)]
    with pytest.raises(JournalError, match="full"):
        journal.hear(many, heartbeat=True)
    assert before == (journal.newest_events(10), journal.tallies(), journal.open_incidents())
    assert journal.moments() == {}
    journal._file.connection.execute("PRAGMA max_page_count = 1000000")
    journal.hear(many)
    assert len(journal.open_incidents()) == 51


def test_an_intent_that_cannot_be_written_is_refused_whole(journal: Journal) -> None:
    journal.hear([make_alert()])
    full(journal)
    crowd = [Identity(1_000_000 + index, 123_456_789) for index in range(5000)]
    with pytest.raises(JournalError):
        journal.intend(1, ROLLOUT, "restart", crowd)
    assert journal.unfinished() == ()
    assert kinds(journal) == ["alert"]


def test_a_closed_journal_says_so_in_its_own_words(tmp_path: Path, clock: FakeClock) -> None:
    journal = Journal(tmp_path / "journal.db", clock=clock)
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.hear([make_alert()])
    with pytest.raises(JournalError, match="closed"):
        journal.open_incidents()


def test_an_action_that_is_not_there_changes_nothing(journal: Journal) -> None:
    with pytest.raises(JournalError):
        journal.intend(99, WorkerKey("demo", "x"), "restart", ())
    assert journal.unfinished() == ()
