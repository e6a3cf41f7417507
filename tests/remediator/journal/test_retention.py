"""The journal does not grow for ever, and loses nothing that still counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.fakes import outbox_of
from tests.remediator.samples import NOW, OTHER, ROLLOUT, make_alert
from tests.remediator.stage import Stage

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.config.limits import (
    KEEP_TREATED_SECONDS,
    KEEP_UNTREATED_SECONDS,
    JournalLimits,
)
from trainwarden_remediator.config.notifications import NotifySettings
from trainwarden_remediator.engine.maintenance import PRUNE_SECONDS
from trainwarden_remediator.journal import retention
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.queries import LAST_ACTIONS
from trainwarden_remediator.journal.retention import bytes_used
from trainwarden_remediator.model import Decision, Reason, Verdict

DAY = 86400.0
LIMITS = JournalLimits(age=30 * DAY)
SMALL = JournalLimits(age=30 * DAY, size=1 << 20)
COUNTED = 6 * 3600.0
"""Budgets look back for so long."""

NOBODY = NotifySettings()
SOMEBODY = NotifySettings.model_validate(
    {"receivers": [{"name": "ops", "kind": "json", "url": "http://127.0.0.1:1/"}], "instance": "b"}
)


def rows(journal: Journal) -> Mapping[str, list[Any]]:
    """The incident that each row is about, by table."""
    of = {"incident": "id", "event": "incident", "action": "incident", "evidence": "incident"}
    return {
        table: [row[0] for row in journal._file.read(f"SELECT {column} FROM {table} ORDER BY id")]  # noqa: S608
        for table, column in of.items()
    }


def hear(journal: Journal, clock: FakeClock, **labels: Any) -> int:
    """An alert unlike all others; the number of its incident."""
    clock.pass_by(1)
    fingerprint = f"{round(clock.now()):016x}"
    journal.record_alerts([make_alert(starts_at=clock.now(), fingerprint=fingerprint, **labels)])
    return journal.open_incidents()[-1].id


def close(journal: Journal, number: int, reason: Reason = "resolved") -> None:
    incident = next(one for one in journal.open_incidents() if one.id == number)
    journal.record_decisions([(incident, Decision(Verdict.REFUSE, reason))])


def act(journal: Journal, incident: int, key: WorkerKey = ROLLOUT, *, end: bool = True) -> None:
    action = journal.record_intent(incident, key, "restart", ())
    journal.keep_evidence(incident, action, "before", "{}")
    journal.record_step(action, "start")
    if end:
        journal.record_result(action, "done")
        journal.record_outcome(action, "healed")


def prune(
    journal: Journal, limits: JournalLimits = LIMITS, notify: NotifySettings = NOBODY
) -> None:
    while outbox_of(journal).collect(notify):
        pass
    journal.prune(limits, COUNTED)


def test_what_is_over_for_long_is_let_go_whole_and_nothing_else(
    journal: Journal, clock: FakeClock
) -> None:
    old = hear(journal, clock)
    act(journal, old)
    close(journal, old)
    for _ in range(LAST_ACTIONS):
        known = hear(journal, clock)
        act(journal, known)
        close(journal, known)
    journal.record_event("alerts_stale")
    clock.pass_by(LIMITS.age - 60)
    young = hear(journal, clock)
    close(journal, young)
    journal.record_event("alerts_resumed")
    prune(journal)
    assert old in rows(journal)["incident"]
    clock.pass_by(120)
    last = rows(journal)
    prune(journal)
    kept = {table: [one for one in found if one != old] for table, found in last.items()}
    kept["event"].remove(None)  # the line about no incident that is as old
    assert rows(journal) == kept
    assert young in kept["incident"]


def test_what_is_open_or_under_way_is_kept_however_old(journal: Journal, clock: FakeClock) -> None:
    hear(journal, clock)
    begun = hear(journal, clock)
    act(journal, begun, end=False)
    close(journal, begun)
    close(journal, hear(journal, clock))
    clock.pass_by(10 * LIMITS.age)
    before = rows(journal)
    assert len(before["incident"]) == 3
    prune(journal)
    # the last is over, and kept for its number
    assert rows(journal) == before


def test_what_budgets_count_reads_the_same_before_and_after(
    journal: Journal, clock: FakeClock
) -> None:
    for key in (ROLLOUT, OTHER):
        for _ in range(LAST_ACTIONS + 5):
            incident = hear(journal, clock)
            act(journal, incident, key)
            close(journal, incident)
            clock.pass_by(600)
    clock.pass_by(LIMITS.age)
    recent = hear(journal, clock)
    act(journal, recent)
    close(journal, recent)
    counted = journal.past_actions(clock.now() - COUNTED), journal.count_breaker_actions(COUNTED)
    counters = journal.counters()
    assert len(rows(journal)["action"]) == 2 * (LAST_ACTIONS + 5) + 1
    prune(journal)
    assert len(rows(journal)["action"]) == 2 * LAST_ACTIONS
    after = journal.past_actions(clock.now() - COUNTED), journal.count_breaker_actions(COUNTED)
    assert after == counted
    assert journal.counters() == counters


def test_budgets_that_look_back_further_than_the_limit_keep_what_they_count(
    journal: Journal, clock: FakeClock
) -> None:
    for _ in range(LAST_ACTIONS + 1):
        incident = hear(journal, clock)
        act(journal, incident)
        close(journal, incident)
    hear(journal, clock)
    clock.pass_by(LIMITS.age + 60)
    before = rows(journal)
    outbox_of(journal).collect(NOBODY)
    journal.prune(LIMITS, LIMITS.age + DAY)
    assert rows(journal) == before
    prune(journal)
    assert rows(journal) != before


def test_an_alert_that_is_still_repeated_stays_given_up(journal: Journal, clock: FakeClock) -> None:
    alert = make_alert(starts_at=NOW - 60)
    journal.record_alerts([alert])
    close(journal, 1, "ladder_exhausted")
    hear(journal, clock)
    clock.pass_by(LIMITS.age + DAY)
    journal.record_alerts([alert])
    prune(journal)
    prune(journal, SMALL)
    clock.pass_by(DAY)
    journal.record_alerts([alert])
    assert [one.id for one in journal.open_incidents()] == [2]


def test_what_is_still_to_be_reported_is_kept_until_it_has_been(
    journal: Journal, clock: FakeClock
) -> None:
    close(journal, hear(journal, clock), "ladder_exhausted")
    hear(journal, clock)
    clock.pass_by(LIMITS.age + DAY)
    before = rows(journal)
    journal.prune(LIMITS, COUNTED)  # the notifier has not checked yet whether to notify
    assert rows(journal) == before
    prune(journal, notify=SOMEBODY)
    assert rows(journal) == before
    (notice,) = outbox_of(journal).pending("ops")
    outbox_of(journal).settle([notice], "sent")
    prune(journal, notify=SOMEBODY)
    assert rows(journal) == {table: [n for n in found if n != 1] for table, found in before.items()}
    assert journal._file.read("SELECT * FROM notice") == []


def test_no_number_is_given_twice(journal: Journal, clock: FakeClock) -> None:
    close(journal, hear(journal, clock))
    clock.pass_by(2 * LIMITS.age)
    newest = journal.newest_events(1)[0].id
    prune(journal)
    assert hear(journal, clock) == 2
    assert journal.newest_events(1)[0].id == newest + 1


def fill(journal: Journal, clock: FakeClock, count: int, **labels: Any) -> None:
    """So many alerts that nothing was done about, of two kilobytes each."""
    first = clock.now() + 1
    journal.record_alerts(
        [
            make_alert(starts_at=first + number, padding="x" * 1900, **labels)
            for number in range(count)
        ]
    )
    decision = Decision(Verdict.REFUSE, "resolved")
    journal.record_decisions([(one, decision) for one in journal.open_incidents()])


def test_a_flood_is_let_go_once_it_is_over_until_the_journal_is_small_enough(
    journal: Journal, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_ROWS", 100)
    incident = hear(journal, clock)
    act(journal, incident)
    close(journal, incident)
    close(journal, hear(journal, clock), "ladder_exhausted")
    for _ in range(15):
        fill(journal, clock, 100)
        clock.pass_by(200)
    assert bytes_used(journal._file) > 2 * SMALL.size
    prune(journal, SMALL)
    assert len(rows(journal)["incident"]) == 1502
    clock.pass_by(KEEP_UNTREATED_SECONDS + 60)
    fill(journal, clock, 10)
    prune(journal, SMALL)
    left = rows(journal)["incident"]
    assert bytes_used(journal._file) <= SMALL.size
    # the oldest went first, and no more than had to; what counts stays
    assert left == [1, 2, *range(left[2], 1513)]
    assert 1000 > len(left) > 200
    assert rows(journal)["action"] == [incident]
    assert {*rows(journal)["event"]} == {*left}


def test_what_was_done_is_kept_for_a_week_whatever_the_size(
    journal: Journal, clock: FakeClock
) -> None:
    for _ in range(LAST_ACTIONS + 100):
        incident = hear(journal, clock)
        act(journal, incident)
        journal.keep_evidence(incident, None, "decided", "x" * 20_000)
        close(journal, incident)
    assert bytes_used(journal._file) > 2 * SMALL.size
    clock.pass_by(KEEP_TREATED_SECONDS - 600)
    before = rows(journal)
    prune(journal, SMALL)
    assert rows(journal) == before
    clock.pass_by(1200)
    prune(journal, SMALL)
    left = rows(journal)
    assert bytes_used(journal._file) <= SMALL.size
    assert left["incident"] == before["incident"][-len(left["incident"]) :]
    assert left["action"] == left["incident"]
    assert {*left["event"]} == {*left["evidence"]} == {*left["incident"]}


async def test_the_remediator_prunes_its_journal_again_and_again(stage: Stage) -> None:
    async with stage() as scene:
        for about in ("first", "second"):
            scene.hear(run=about, starts_at=scene.clock.now())
            await scene.clock.advance(1)
            close(scene.journal, scene.journal.open_incidents()[0].id)
            outbox_of(scene.journal).collect(NOBODY)
            await scene.clock.advance(PRUNE_SECONDS)
        assert rows(scene.journal)["incident"] == [1, 2]
        scene.clock.pass_by(scene.setup.config.journal_limits.age)
        await scene.clock.advance(PRUNE_SECONDS)
        assert rows(scene.journal)["incident"] == [2]
