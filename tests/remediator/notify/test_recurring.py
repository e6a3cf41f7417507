"""A fault that is healed again and again: an operator hears of it, and of what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.fakes import outbox_of
from tests.remediator.notify.test_notifier import receivers
from tests.remediator.samples import ROLLOUT, make_alert, make_setup

from trainwarden_remediator.config.notifications import NotifySettings
from trainwarden_remediator.journal.event_text import describe
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.rows import Outcome
from trainwarden_remediator.notify.advice import advice
from trainwarden_remediator.notify.messages import Message, build_message

LEAK_SECONDS = 2400.0


def heal(
    journal: Journal,
    clock: FakeClock,
    outcome: Outcome = "healed",
    alert: str = "",
    step: float | None = None,
    **facts: Any,
) -> None:
    """A worker exceeds its limit and is restarted, which takes a minute; then it runs."""
    changes: Any = {"alertname": alert} if alert else {}
    received = make_alert(starts_at=clock.now(), **changes)
    journal.record_alerts([received])
    incident = journal.open_incidents()[-1]
    action = journal.record_intent(incident.id, ROLLOUT, "restart", [], attempt=(1, 3), step=step)
    clock.pass_by(20)
    journal.record_result(action, "done", started_by="trainwarden", processes=[1])
    clock.pass_by(40)
    journal.record_outcome(action, outcome, seconds=60, **facts)
    journal.record_alerts([replace(received, firing=False)])
    clock.pass_by(LEAK_SECONDS - 40)


def sent(journal: Journal, notify: NotifySettings, folder: Path) -> Sequence[Message]:
    """What the receiver gets, each notification as a message of its own."""
    outbox = outbox_of(journal)
    outbox.collect(notify)
    setup = make_setup(folder, "/".join(ROLLOUT))
    pending = [replace(one, advice=advice(one, setup, ())) for one in outbox.pending("ops")]
    return [build_message([one], instance="b", mode="act") for one in pending]


def test_the_second_time_it_has_pace_and_cost_and_the_fourth_time_it_rings(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    for _ in range(5):
        heal(journal, clock, steps_repeated=30)
    messages = sent(journal, receivers(), tmp_path)
    assert [one.urgent for one in messages] == [False, False, False, True, False]
    assert [*messages[2].events, *messages[3].events] == ["healed", "recurring"]
    items = [one.items[0].values for one in messages]
    assert ["Repeated" in one for one in items] == [False, True, True, True, True]
    again = "times since 08:00 UTC: the fault comes back 40 min after each restart"
    assert items[1]["Repeated"] == f"2 {again}, and has cost 2 min and 60 steps made again so far"
    assert items[2]["Repeated"] == (
        f"3 {again}, and has cost 3 min and 90 steps made again so far; the next time rings"
    )
    assert all(one["What"] == "healed: verified 60 s after the action began" for one in items)
    assert items[2]["Who acts"] == "Nobody needs to"
    assert messages[3].title == "healed again and again, operator needed"
    assert items[3]["Who acts"] == "You, now"
    assert items[3]["Repeated"].startswith(f"4 {again}, and")
    assert "mend the leak, or raise its memory limit" in items[3]["What to do"]
    assert "1 min from the alert to health" in items[3]["Cost"]


def test_the_time_without_a_new_step_counts_where_it_is_known(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    for _ in range(3):
        began = clock.now()
        heal(journal, clock, interruption_start=began - 60, interruption_end=began + 60)
    last = sent(journal, receivers(), tmp_path)[2].items[0].values["Repeated"]
    assert "and has cost 6 min so far" in last


def test_a_run_that_makes_no_new_step_between_its_failures_has_lost_that_time_once(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    """It begins at step 0 each time, and fails again at its best step, 100."""
    best_step_at = clock.now() - 20
    resumed: dict[str, Any] = {"interruption_start": best_step_at, "resume_step": 0}
    heal(journal, clock, step=100, **resumed, steps_repeated=100)
    heal(journal, clock, step=100, **resumed)  # not counted: the exporter was just started
    heal(journal, clock, step=100, **resumed, steps_repeated=100)
    again = [
        one.items[0].values.get("Repeated", "") for one in sent(journal, receivers(), tmp_path)
    ]
    # from 20 s before the first alert until 60 s after the last, of one each 2420 s
    assert "and has cost 41 min 40 s and at least 200 steps made again so far" in again[1]
    assert "and has cost 1 h 22 min and at least 300 steps made again so far" in again[2]


def test_what_fails_now_and_then_does_not_ring(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    for _ in range(6):
        heal(journal, clock)
        clock.pass_by(5 * 3600)
    assert not any(one.urgent for one in sent(journal, receivers(), tmp_path))


def test_another_cause_and_what_was_not_healed_do_not_count(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    outcomes: tuple[Outcome, ...] = ("healed", "not_healed", "healed")
    for outcome in outcomes:
        heal(journal, clock, outcome)
    heal(journal, clock, alert="TrainingWorkerGone")
    messages = sent(journal, receivers(events=["healed"]), tmp_path)
    counts = [one.items[0].values.get("Repeated", "").partition(" ")[0] for one in messages]
    assert counts == ["", "2", ""]


@pytest.mark.parametrize(
    ("events", "received"),
    [(["recurring"], ["recurring"]), (["healed"], ["healed"] * 4), (["gave_up"], [])],
)
def test_a_receiver_that_only_wants_what_has_healed_gets_each_of_them(
    tmp_path: Path, journal: Journal, clock: FakeClock, events: list[str], received: list[str]
) -> None:
    for _ in range(4):
        heal(journal, clock)
    messages = sent(journal, receivers(events=events), tmp_path)
    assert [one.events[0] for one in messages] == received


def test_the_journal_has_it_too(journal: Journal, clock: FakeClock) -> None:
    for _ in range(3):
        heal(journal, clock)
    lines = [describe(one) for one in journal.newest_events(99) if one.kind == "outcome"]
    verified = "healed: verified 60 s after the action began"
    assert lines[0].startswith(f"{verified}; 3 times since 08:00 UTC: the fault comes back")
    assert lines[1].startswith(f"{verified}; 2 times since 08:00 UTC: the fault comes back")
    assert lines[2] == verified
