"""The on-call is notified once for each event, until a message has arrived, over any faults."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock, InlineExecutor
from tests.remediator.fakes import outbox_of
from tests.remediator.journal.test_database import VERSION_1
from tests.remediator.samples import LATER, NOW, ROLLOUT, make_alert
from tests.remediator.stage import Scene, Stage, going_on

from trainwarden_exporter.runtime.formatting import format_time
from trainwarden_remediator.config.notifications import NotifySettings, Receiver
from trainwarden_remediator.config.restart_methods.run import WRAPPER_ENDED, RunTarget
from trainwarden_remediator.exceptions import JournalError, NotDeliveredError
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal.approvals import approve
from trainwarden_remediator.journal.database import open_database
from trainwarden_remediator.journal.event_text import describe
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.rows import read_events
from trainwarden_remediator.model import BLOCKED_SECONDS, WORKER_GONE, Decision, Reason, Verdict
from trainwarden_remediator.notify import outbox
from trainwarden_remediator.notify.formats import PostRequest
from trainwarden_remediator.notify.notifier import (
    MAX_BACKOFF_SECONDS,
    MIN_INTERVAL_SECONDS,
    Notifier,
)
from trainwarden_remediator.notify.outbox import EVIDENCE_SECONDS, Outbox
from trainwarden_remediator.notify.waiting import describe_waiting
from trainwarden_remediator.policy.failing_starts import LOOP_SECONDS

GAVE_UP = Decision(Verdict.REFUSE, "ladder_exhausted")
HOLD = Decision(Verdict.ACT, "hold")


def receivers(*names: str, **changes: Any) -> NotifySettings:
    given = {
        key: changes.pop(key) for key in ("repeat_interval", "delivery_timeout") if key in changes
    }
    content = {"kind": "json", "url": "http://127.0.0.1:1/", **changes}
    each = [{"name": name, **content} for name in names or ("ops",)]
    return NotifySettings.model_validate({"receivers": each, "instance": "b", **given})


@dataclass
class FakePost:
    """Keeps what was sent; `error` is raised instead, `hangs` waits for ever."""

    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    error: NotDeliveredError | None = None
    hangs: tuple[str, ...] = ()
    tried: int = 0

    async def __call__(self, receiver: Receiver, request: PostRequest) -> None:
        self.tried += 1
        if receiver.name in self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        self.sent.append((receiver.name, json.loads(request.body)))

    def titles(self) -> list[str]:
        return [content["title"] for _, content in self.sent]


Calling = Callable[..., Any]


@pytest.fixture
def calling(clock: FakeClock) -> Calling:
    @asynccontextmanager
    async def begin(
        journal: Journal, post: FakePost, notify: NotifySettings, *holds: Hold
    ) -> AsyncIterator[Notifier]:
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
        notifier = Notifier(notify, outbox_of(journal, *holds), post, clock=clock, mode="act")
        async with going_on(notifier.run()):
            await clock.settle()
            yield notifier

    return begin


def decide(journal: Journal, decision: Decision = GAVE_UP, **alert: Any) -> None:
    """Hear of an alert, and come to a decision about it."""
    received = make_alert(**alert)
    journal.record_alerts([received])
    incident = next(
        one
        for one in journal.open_incidents()
        if (one.fingerprint, one.starts_at) == (received.fingerprint, received.starts_at)
    )
    journal.record_decisions([(incident, decision)])


def results(journal: Journal) -> dict[str, float]:
    return {labels[1]: n for labels, n in journal.counters().get("notifications", {}).items()}


async def test_the_on_call_is_paged_once_when_it_is_given_up(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers()):
        decide(journal)
        await clock.advance(300)
    ((name, content),) = post.sent
    assert (name, content["events"], content["urgent"]) == ("ops", ["gave_up"], True)
    assert content["items"][0]["worker"] == "demo/rollout-0"
    assert results(journal) == {"sent": 1}


async def test_a_reported_event_is_not_reported_again_after_a_restart(
    tmp_path: Path, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    for _ in range(20):
        journal = Journal(tmp_path / "own.db", clock=clock)
        async with calling(journal, post, receivers()):
            if not post.sent:
                decide(journal)
            await clock.advance(MIN_INTERVAL_SECONDS + 1)
        journal.close()
    assert post.titles() == ["incident abandoned, operator needed"]


async def test_a_message_that_could_not_be_sent_is_sent_after_a_restart(
    tmp_path: Path, clock: FakeClock, calling: Calling
) -> None:
    away = FakePost(error=NotDeliveredError("no answer"))
    journal = Journal(tmp_path / "own.db", clock=clock)
    async with calling(journal, away, receivers()):
        decide(journal)
        await clock.advance(60)
    journal.close()
    assert away.tried
    post = FakePost()
    journal = Journal(tmp_path / "own.db", clock=clock)
    async with calling(journal, post, receivers()):
        await clock.advance(1)
    assert post.titles() == ["incident abandoned, operator needed"]
    assert results(journal) == {"failed": away.tried, "sent": 1}
    journal.close()


async def test_the_journal_names_what_is_pending_for_which_receiver_since_when_and_why(
    tmp_path: Path, clock: FakeClock, calling: Calling
) -> None:
    away = FakePost(error=NotDeliveredError("unreachable: connection refused"))
    path = tmp_path / "own.db"
    journal = Journal(path, clock=clock)

    def waiting() -> list[str]:
        with open_database(path, mode="ro") as connection:
            return list(describe_waiting(connection, clock.now()))

    async with calling(journal, away, receivers("phone")):
        assert waiting() == []
        decide(journal)
        since = format_time(clock.now())
        await clock.advance(60)
        (line,) = waiting()
        assert line == (
            f"pending for phone: 1 notification (gave_up), since {since} (1 min): unreachable:"
            " connection refused; `trainwarden notify-test phone` tries it"
        )
        with open_database(path, mode="ro") as connection:
            events = [describe(one) for one in read_events(connection) if one.kind == "not_sent"]
        once = "not sent to phone: unreachable: connection refused; 1 notification pending"
        assert events == [once]  # and not again at each attempt
        away.error = None
        await clock.advance(MAX_BACKOFF_SECONDS)
        assert waiting() == []
    journal.close()


async def test_a_loop_that_comes_and_goes_calls_seldom_and_not_every_17_seconds(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers(repeat_interval="5m")):
        for _ in range(2 * 300 // 17):
            decide(journal, HOLD, starts_at=clock.now(), alertname="TrainingWorkerRestartLoop")
            await clock.advance(17)
    assert len(post.sent) == 2
    assert all(content["events"] == ["held_by_alert"] for _, content in post.sent)


async def test_another_reason_and_a_second_time_after_resume_are_news(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers()):
        decide(journal, Decision(Verdict.REFUSE, "processes_differ"))
        await clock.advance(60)
        decide(journal, Decision(Verdict.WAIT, "cooldown"))
        decide(journal, Decision(Verdict.REFUSE, "processes_differ"))
        await clock.advance(60)
        assert post.titles() == ["not healed before an operator changes something"]
        decide(journal)
        await clock.advance(60)
        assert post.titles()[1:] == ["incident abandoned, operator needed"]
        journal.record_event("resume")
        decide(journal, starts_at=clock.now())
        await clock.advance(60)
        assert len(post.sent) == 3


async def test_a_full_disk_calls_once_also_where_a_second_alert_of_it_follows_a_resume(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post, disk = FakePost(), {"alertname": "TrainingDiskFilling", "worker": "", "path": "/ckpt"}
    async with calling(journal, post, receivers()):
        decide(journal, HOLD, **disk)
        await clock.advance(15)
        journal.record_event("resume")
        decide(journal, HOLD, **disk, checkpoint="trainer", fingerprint=LATER)
        await clock.advance(60)
    assert post.titles() == ["restarts blocked by this alert, operator needed"]


async def test_a_critical_alert_that_fires_again_after_its_end_is_news_and_its_end_too(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    def record(kind: str, gpu: int = 0) -> None:
        facts = {"alert": "TrainingGpuLost", "run": "", "worker": "", "starts_at": NOW}
        journal.record_event(kind, **facts, fingerprint=f"{gpu:016x}")

    post = FakePost()
    async with calling(journal, post, receivers()):
        for _ in range(2):
            record("unhandled")
            record("unhandled")  # repeated
            await clock.advance(60)
            record("unhandled", gpu=1)
            await clock.advance(60)
            record("unhandled_ended")
            record("unhandled_ended", gpu=1)  # the same message
            await clock.advance(60)
    begun, ended = "critical alert, operator needed", "a critical alert has ended"
    assert post.titles() == [begun, begun, ended] * 2


async def test_each_rung_that_notifies_is_news(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers(events=["paged"])):
        journal.record_alerts([make_alert()])
        (incident,) = journal.open_incidents()
        for rung in (0, 2):
            journal.record_page(incident.id, ROLLOUT, rung)
            await clock.advance(60)
    assert len(post.sent) == 2


async def test_another_worker_is_news(journal: Journal, clock: FakeClock, calling: Calling) -> None:
    post = FakePost()
    async with calling(journal, post, receivers()):
        decide(journal)
        await clock.advance(60)
        decide(journal, worker="trainer", fingerprint=LATER)
        await clock.advance(60)
    assert [content["items"][0]["worker"] for _, content in post.sent] == [
        "demo/rollout-0",
        "demo/trainer",
    ]


async def test_a_storm_is_reported_in_few_messages(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers()):
        for number in range(30):
            decide(journal, fingerprint=f"{number:016x}", worker=f"w{number}")
        await clock.advance(60)
    assert len(post.sent) == 1
    assert post.titles() == ["incident abandoned, operator needed (and 29 more)"]
    assert results(journal) == {"sent": 30}


async def test_it_is_tried_again_ever_less_often_and_at_least_every_five_minutes(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost(error=NotDeliveredError("answered 503"))
    async with calling(journal, post, receivers()):
        decide(journal)
        await clock.advance(60)
        assert 3 <= post.tried <= 5
        before = post.tried
        await clock.advance(4 * MAX_BACKOFF_SECONDS)
        assert 3 <= post.tried - before <= 8
        post.error = None
        await clock.advance(MAX_BACKOFF_SECONDS + 2)
    assert post.titles() == ["incident abandoned, operator needed"]


async def test_who_wants_to_be_left_alone_is(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost(error=NotDeliveredError("answered 429", retry_after=600))
    async with calling(journal, post, receivers()):
        decide(journal)
        await clock.advance(590)
        assert post.tried == 1
        await clock.advance(20)
        assert post.tried == 2


async def test_a_hung_receiver_keeps_no_other_from_being_notified(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost(hangs=("slow",))
    async with calling(journal, post, receivers("slow", "ops")):
        decide(journal)
        await clock.advance(5)
        decide(journal, worker="trainer", fingerprint=LATER)
        await clock.advance(30)
    assert [name for name, _ in post.sent] == ["ops", "ops"]
    assert post.tried == 3


async def test_a_message_that_was_refused_is_sent_again_without_values(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost(error=NotDeliveredError("answered 400", rejected=True))
    async with calling(journal, post, receivers()):
        decide(journal)
        await clock.advance(4)
        post.error = None
        await clock.advance(10)
    ((_, content),) = post.sent
    assert content["items"] == [{"title": "incident abandoned, operator needed"}]


async def test_what_cannot_be_delivered_is_dropped_in_the_end_and_counted(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost(error=NotDeliveredError("answered 503"))
    notify = receivers(delivery_timeout="10m")
    async with calling(journal, post, notify):
        decide(journal)
        await clock.advance(599)
        assert outbox_of(journal).queue_states(notify.receivers)["ops"] is not None
        await clock.advance(5)
        tried = post.tried
        await clock.advance(2 * MAX_BACKOFF_SECONDS)
    assert post.tried == tried
    assert results(journal)["dropped"] == 1
    assert outbox_of(journal).queue_states(notify.receivers) == {"ops": None}


async def test_a_queue_that_is_full_keeps_what_needs_an_operator(
    journal: Journal, clock: FakeClock, calling: Calling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_QUEUE", 4)
    monkeypatch.setattr(outbox, "EVENTS_PER_BATCH", 5)
    post = FakePost(error=NotDeliveredError("answered 503"))
    notify = receivers(events=["gave_up", "action_started"])
    async with calling(journal, post, notify):
        decide(journal)
        for _ in range(20):
            journal.record_intent(1, ROLLOUT, "restart", [])
        await clock.advance(10)
        queue = outbox_of(journal).queue_states(notify.receivers)["ops"]
        post.error = None
        await clock.advance(60)
    assert queue is not None
    assert queue.pending == 4
    assert results(journal)["dropped"] == 17
    assert post.sent[0][1]["events"] == ["gave_up", "action_started"]


async def test_a_receiver_gets_only_its_configured_occasions(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers(events=["healed"])):
        decide(journal)
        action = journal.record_intent(1, ROLLOUT, "restart", [])
        await clock.advance(10)
        assert not post.sent
        journal.record_result(action, "done", started_by="trainwarden", processes=[1])
        journal.record_outcome(action, "healed", seconds=4)
        await clock.advance(10)
    assert post.titles() == ["healed"]


async def test_a_receiver_that_is_added_gets_no_past_notices(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, NotifySettings()) as notifier:
        decide(journal)
        await clock.advance(5)
        notifier.reconfigure(receivers(), mode="act")
        await clock.advance(5)
        assert not post.sent
        decide(journal, worker="trainer", fingerprint=LATER)
        await clock.advance(5)
    assert len(post.sent) == 1


async def test_notices_for_a_removed_receiver_are_dropped(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost(error=NotDeliveredError("answered 404"))
    async with calling(journal, post, receivers("old")) as notifier:
        decide(journal)
        await clock.advance(5)
        notifier.reconfigure(receivers("new"), mode="act")
        post.error = None
        await clock.advance(600)
        notifier.reconfigure(receivers("old"), mode="act")
        await clock.advance(600)
    assert not post.sent
    assert "dropped" not in results(journal)


async def test_an_address_that_was_mended_is_tried_at_once(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost(error=NotDeliveredError("answered 404", retry_after=3000))
    async with calling(journal, post, receivers()) as notifier:
        decide(journal)
        await clock.advance(5)
        post.error = None
        notifier.reconfigure(receivers(url="http://127.0.0.1:2/"), mode="act")
        await clock.advance(2)
    assert len(post.sent) == 1


async def test_what_has_arrived_is_not_sent_again_while_that_cannot_be_written_down(
    journal: Journal, clock: FakeClock, calling: Calling, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = FakePost()
    full = {"disk": True}
    settle = Outbox.settle

    def refuse(*given: Any) -> None:
        if full["disk"]:
            raise JournalError("disk full")
        settle(*given)

    monkeypatch.setattr(Outbox, "settle", refuse)
    async with calling(journal, post, receivers()):
        decide(journal)
        await clock.advance(300)
        assert len(post.sent) == 1
        full["disk"] = False
        await clock.advance(60)
    assert len(post.sent) == 1
    assert results(journal) == {"sent": 1}


def starve(*_: Any) -> Any:
    raise MemoryError


async def test_want_of_memory_puts_a_call_off_and_loses_none(
    journal: Journal, clock: FakeClock, calling: Calling, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = FakePost()

    async with calling(journal, post, receivers()):
        with monkeypatch.context() as patch:
            patch.setattr(Outbox, "collect", starve)
            decide(journal)
            await clock.advance(60)
            assert post.sent == []
        await clock.advance(60)
    assert len(post.sent) == 1


async def test_so_does_want_of_it_while_a_message_is_written(
    *,
    journal: Journal,
    clock: FakeClock,
    calling: Calling,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    post = FakePost()

    async with calling(journal, post, receivers()):
        with monkeypatch.context() as patch:
            patch.setattr(Outbox, "pending", starve)
            decide(journal)
            await clock.advance(10)
            assert post.sent == []
        await clock.advance(60)
    assert len(post.sent) == 1
    journaled = [vars(one) for one in caplog.records if one.msg == "notification delayed"]
    assert [(one["receiver"], one["error"]) for one in journaled] == [("ops", "out of memory")] * 2


async def test_the_error_of_a_receiver_is_logged_once_and_names_it(
    journal: Journal, clock: FakeClock, calling: Calling, caplog: pytest.LogCaptureFixture
) -> None:
    post = FakePost(error=NotDeliveredError("answered 404"))
    async with calling(journal, post, receivers()):
        decide(journal)
        await clock.advance(1000)
    (record,) = (one for one in caplog.records if one.msg == "notification not delivered")
    assert vars(record)["receiver"] == "ops"


async def test_what_the_engine_gives_up_is_reported(stage: Stage, calling: Calling) -> None:
    post = FakePost()
    scene: Scene
    async with stage(attempts=1) as scene, calling(scene.journal, post, receivers()):
        scene.action.heal = {"memory_bytes": 9e9}
        scene.hear()
        await scene.pass_time(900)
        assert "attempts_exhausted" in scene.journaled()
    ((_, content),) = post.sent
    assert content["items"][0]["tried"] == "restart not healed"


async def test_what_was_tried_on_each_alert_of_an_outage_is_reported(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers()):
        decide(journal, Decision(Verdict.ACT, "restart"))
        begun = journal.record_intent(1, ROLLOUT, "restart", ())
        clock.pass_by(5)
        decide(
            journal,
            Decision(Verdict.WAIT, "busy"),
            fingerprint=LATER,
            alertname="TrainingInferenceDown",
            starts_at=clock.now(),
        )
        again = journal.record_intent(2, ROLLOUT, "restart", ())
        for number in (begun, again):
            journal.record_result(number, "done", started_by="us", processes=[])
        journal.record_outcome(begun, "not_healed")
        journal.record_outcome(again, "healed")
        decide(journal)
        await clock.advance(10)
    assert [one.part_of for one in journal.open_incidents()] == [1]
    tried = [item.get("tried") for _, content in post.sent for item in content["items"]]
    assert "restart not healed; restart healed" in tried


async def test_a_page_to_the_on_call_is_no_attempt(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers(events=["paged"])):
        journal.record_alerts([make_alert()])
        (incident,) = journal.open_incidents()
        journal.record_page(incident.id, ROLLOUT, 0)
        await clock.advance(5)
    ((_, content),) = post.sent
    assert (content["events"], content["items"][0]["worker"]) == (["paged"], "demo/rollout-0")
    assert "tried" not in content["items"][0]


def test_what_a_journal_of_an_earlier_version_holds_is_no_news(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "own.db"
    facts = '{"verdict": "refuse", "reason": "attempts_exhausted"}'
    with closing(sqlite3.connect(path)) as old:
        old.executescript(f"{VERSION_1} PRAGMA user_version = 1;")
        old.execute("INSERT INTO event VALUES (1, ?, NULL, NULL, 'decision', ?)", (NOW, facts))
        old.commit()
    with closing(Journal(path, clock=clock)) as journal:
        assert not outbox_of(journal).collect(receivers())
        assert outbox_of(journal).pending("ops") == ()
        decide(journal)
        outbox_of(journal).collect(receivers())
        clock.pass_by(EVIDENCE_SECONDS)
        assert len(outbox_of(journal).pending("ops")) == 1


def test_what_happened_while_nobody_looked_is_reported_late_and_says_when(
    tmp_path: Path, clock: FakeClock
) -> None:
    with closing(Journal(tmp_path / "own.db", clock=clock)) as journal:
        decide(journal)
    clock.pass_by(3600)
    with closing(Journal(tmp_path / "own.db", clock=clock)) as journal:
        outbox_of(journal).collect(receivers())
        outbox_of(journal).expire(receivers())
        (notification,) = outbox_of(journal).pending("ops")
        assert notification.event.at == NOW
        clock.pass_by(2 * 86400)
        outbox_of(journal).expire(receivers())
        assert outbox_of(journal).pending("ops") == ()


def test_notices_know_since_when_they_wait(journal: Journal, clock: FakeClock) -> None:
    notify = receivers()
    decide(journal)
    clock.pass_by(50)
    decide(journal, worker="trainer", fingerprint=LATER)
    outbox_of(journal).collect(notify)
    clock.pass_by(EVIDENCE_SECONDS)
    queue = outbox_of(journal).queue_states(notify.receivers)["ops"]
    assert queue is not None
    assert (queue.pending, queue.oldest_at) == (2, NOW)
    assert [notification.event.worker for notification in outbox_of(journal).pending("ops")] == [
        "rollout-0",
        "trainer",
    ]


HELD = Decision(Verdict.WAIT, "held")


async def test_an_alert_that_stays_blocked_is_reported_once_after_two_minutes(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers(), Hold()):
        decide(journal, HELD)
        await clock.advance(BLOCKED_SECONDS - 5)
        assert post.sent == []
        await clock.advance(600)
    assert post.titles() == ["an alert waits for its action"]
    ((_, content),) = post.sent
    assert content["urgent"]
    assert "held by an operator" in content["items"][0]["what"]


@pytest.mark.parametrize(
    ("holds", "called"),
    [
        ([Hold(run="demo", until=NOW + 2 * BLOCKED_SECONDS)], 0),
        ([Hold(run="demo", worker="rollout-0", until=NOW + BLOCKED_SECONDS + 3)], 0),
        ([Hold(until=NOW + 2 * BLOCKED_SECONDS + 20)], 1),
        ([Hold(until=NOW + 4 * 3600)], 1),
        # the last end counts, and no hold of another run
        ([Hold(until=NOW + 150), Hold(run="demo")], 1),
        ([Hold(until=NOW + 150), Hold(run="other")], 0),
    ],
)
async def test_a_hold_that_ends_within_two_minutes_calls_nobody_before_its_end(
    journal: Journal, clock: FakeClock, calling: Calling, holds: list[Hold], called: int
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers(), *holds):
        decide(journal, HELD)
        await clock.advance(BLOCKED_SECONDS + 25)
        decide(journal, Decision(Verdict.ACT, "restart"))  # as once the hold has ended
        await clock.advance(600)
    assert len(post.sent) == called


async def test_a_hold_that_was_to_end_soon_and_was_made_longer_calls(
    journal: Journal, clock: FakeClock
) -> None:
    post, holds = FakePost(), [Hold(until=NOW + BLOCKED_SECONDS + 60)]
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    outbox = Outbox(journal.file, clock=journal._clock, holds=lambda: holds)
    notifier = Notifier(receivers(), outbox, post, clock=clock, mode="act")
    async with going_on(notifier.run()):
        decide(journal, HELD)
        await clock.advance(BLOCKED_SECONDS + 30)
        assert post.sent == []
        holds[:] = [Hold(until=NOW + 3600)]
        await clock.advance(900)
    assert len(post.sent) == 1


@pytest.mark.parametrize("restarted", [True, False])
async def test_that_nobody_restarts_a_worker_is_reported_at_once_after_a_restart_without_effect(
    journal: Journal, clock: FakeClock, calling: Calling, *, restarted: bool
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers()):
        decide(journal, Decision(Verdict.WAIT, "cooldown"))
        if restarted:
            action = journal.record_intent(1, ROLLOUT, "restart", ())
            journal.record_outcome(action, "not_healed")
        decide(journal, Decision(Verdict.WAIT, "managed_elsewhere"))
        await clock.advance(BLOCKED_SECONDS / 2)
    called = ["the remediator may not restart it, operator needed"] if restarted else []
    assert post.titles() == called


def end_alert(journal: Journal) -> None:
    """The alert ends, as after lost scrapes."""
    journal.record_alerts([make_alert(firing=False)])
    (incident,) = journal.open_incidents()
    journal.record_decisions([(incident, Decision(Verdict.REFUSE, "resolved"))])


@pytest.mark.parametrize(
    ("gap", "called_after"), [(20, 0), (BLOCKED_SECONDS + 30, BLOCKED_SECONDS)]
)
async def test_an_alert_that_ends_for_a_moment_is_blocked_since_it_first_was(
    journal: Journal, clock: FakeClock, calling: Calling, gap: float, called_after: float
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers(), Hold()):
        decide(journal, HELD)
        await clock.advance(BLOCKED_SECONDS - 10)
        end_alert(journal)
        await clock.advance(gap)
        assert post.sent == []
        decide(journal, HELD, starts_at=clock.now())
        await clock.advance(called_after - 5)
        assert post.sent == []
        await clock.advance(20)
        assert post.titles() == ["an alert waits for its action"]
        assert [one.id for one in journal.open_incidents()] == [1]
        await clock.advance(600)
    assert len(post.sent) == 1


@pytest.mark.parametrize(
    ("start", "typed"), [("trainwarden run -- a", "trainwarden run -- a"), ("a" * 601, None)]
)
async def test_a_command_that_nobody_starts_again_is_reported_with_its_error_and_its_start(
    journal: Journal, clock: FakeClock, calling: Calling, start: str, typed: str | None
) -> None:
    post, log = FakePost(), {"path": "/runs/fg.log", "lines": ["DataWorkerError: no shard 7"]}
    announced = {"demo/rollout-0": {"exit_code": 1, "start_command": start}}
    content = json.dumps({"logs": [log], "announced": announced})
    async with calling(journal, post, receivers()):
        ended = Decision(Verdict.WAIT, "managed_elsewhere", detail=WRAPPER_ENDED)
        decide(journal, ended, alertname=WORKER_GONE)
        journal.keep_evidence(1, None, "hold", content)
        await clock.advance(BLOCKED_SECONDS + 20)
    assert post.titles() == ["a command has failed and nobody starts it again, operator needed"]
    (item,) = post.sent[0][1]["items"]
    assert (item["last_error"], item["log"]) == ("DataWorkerError: no shard 7", "/runs/fg.log")
    assert item.get("start_again") == typed
    assert ("COMMAND" in item["what"]) == (typed is None)


@pytest.mark.parametrize(
    ("command", "typed"), [("cd /w && trainwarden run -- a", True), ("a" * 601, False), ("", False)]
)
async def test_the_command_is_named_without_evidence(
    journal: Journal, clock: FakeClock, calling: Calling, command: str, *, typed: bool
) -> None:
    """Two decisions at once: the sources of the evidence were still busy with the first."""
    post = FakePost()
    method = RunTarget(run="demo/rollout-0", socket=Path("/s"), owner=0, start_command=command)
    async with calling(journal, post, receivers()):
        ended = Decision(Verdict.WAIT, "managed_elsewhere", detail=method.why_ended)
        decide(journal, ended, alertname=WORKER_GONE)
        await clock.advance(BLOCKED_SECONDS + 20)
    assert post.titles() == ["a command has failed and nobody starts it again, operator needed"]
    (item,) = post.sent[0][1]["items"]
    assert item.get("start_again") == (command if typed else None)
    assert ("type `" in item["what"]) == ("COMMAND" in item["what"]) == (not typed)


@pytest.mark.parametrize("never_works", [True, False])
async def test_a_command_that_can_never_start_is_reported_at_once(
    journal: Journal, clock: FakeClock, calling: Calling, *, never_works: bool
) -> None:
    post, command = FakePost(), "cd /w && trainwarden run -- python3 trian.py"
    method = RunTarget(
        run="demo/rollout-0",
        socket=Path("/s"),
        owner=0,
        start_command=command,
        never_works=never_works,
    )
    async with calling(journal, post, receivers()):
        ended = Decision(Verdict.WAIT, "managed_elsewhere", detail=method.why_ended)
        decide(journal, ended, alertname=WORKER_GONE)
        await clock.advance(20)
        assert bool(post.sent) == never_works, "no restart has shown it, so an operator may yet act"
        await clock.advance(BLOCKED_SECONDS)
    assert post.titles() == ["a command has failed and nobody starts it again, operator needed"]
    (item,) = post.sent[0][1]["items"]
    assert item["start_again"] == command
    assert ("as it can never start" in item["what"]) == never_works


async def test_a_wait_that_ends_automatically_or_in_time_is_not_reported(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers(), Hold()):
        decide(journal, Decision(Verdict.WAIT, "cooldown"))
        decide(journal, HELD, worker="trainer", fingerprint=LATER)
        await clock.advance(BLOCKED_SECONDS - 5)
        decide(journal, Decision(Verdict.ACT, "restart"), worker="trainer", fingerprint=LATER)
        await clock.advance(600)
    assert post.sent == []


async def test_a_blocked_alert_is_not_reported_again_after_a_restart(
    tmp_path: Path, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    for number in range(3):
        journal = Journal(tmp_path / "own.db", clock=clock)
        async with calling(journal, post, receivers(), Hold()):
            if not number:
                decide(journal, HELD)
            await clock.advance(BLOCKED_SECONDS + 60)
        journal.close()
    assert post.titles() == ["an alert waits for its action"]


@pytest.mark.parametrize(("reason", "after"), [("observation_failed", 60), ("held", 0)])
async def test_at_the_start_of_a_stack_nobody_is_called_for_an_exporter_that_starts_too(
    tmp_path: Path, clock: FakeClock, calling: Calling, reason: Reason, after: float
) -> None:
    post = FakePost()
    journal = Journal(tmp_path / "own.db", clock=clock)
    decide(journal, Decision(Verdict.WAIT, "disk_unusable"))
    clock.pass_by(BLOCKED_SECONDS + 60)
    async with calling(journal, post, receivers(), Hold()):
        decide(journal, Decision(Verdict.WAIT, reason))
        await clock.advance(60)
        assert bool(post.sent) is not bool(after)
        await clock.advance(BLOCKED_SECONDS)
    journal.close()
    assert post.titles() == ["an alert waits for its action"]


@pytest.mark.parametrize(
    ("progress", "steps"),
    [
        (
            {"resume_step": 350.0, "first_step": 351.0, "steps_repeated": 15.0},
            "; 15 steps made again",
        ),
        (
            {"resume_step": 362.0, "first_step": 363.0, "steps_repeated": 0.0},
            "; no step lost",
        ),
        # it may have made more steps after the intent
        ({"resume_step": 350.0, "first_step": 351.0}, "; at least 12 steps made again"),
        ({"resume_step": 362.0, "first_step": 363.0, "step_spacing": 1.0}, ""),
        # one line in ten steps: the last one may have been step 371
        (
            {
                "resume_step": 350.0,
                "first_step": 360.0,
                "step_spacing": 10.0,
                "steps_repeated": 12.0,
            },
            "; at least 12 steps made again",
        ),
        ({"resume_step": 362.0, "first_step": 370.0, "step_spacing": 10.0}, ""),
        ({"first_step": 370.0, "step_spacing": 10.0}, ""),
        ({"interruption_start": NOW - 65.0, "interruption_end": NOW + 55.0}, ""),
        ({"interruption_start": NOW - 65.0}, ""),
    ],
)
async def test_a_healed_run_is_reported_quietly_with_what_it_cost(
    journal: Journal,
    clock: FakeClock,
    calling: Calling,
    progress: dict[str, float],
    steps: str,
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers()):
        decide(journal, Decision(Verdict.ACT, "restart"), starts_at=clock.now() - 10)
        (incident,) = journal.open_incidents()
        number = journal.record_intent(incident.id, ROLLOUT, "restart", (), step=362.0)
        await clock.advance(60)
        journal.record_result(number, "done", started_by="us", processes=[])
        journal.record_outcome(number, "healed", seconds=60.0, step=370.0, **progress)
        await clock.advance(10)
    assert post.titles() == ["healed"]
    ((_, content),) = post.sent
    assert not content["urgent"]
    cost = content["items"][0]["cost"]
    since_alert = "1 min 10 s from the alert to health"
    if "interruption_end" in progress:
        since_alert = f"2 min without a new step ({since_alert})"
    elif "interruption_start" in progress:
        since_alert = f"2 min 5 s without a new step so far ({since_alert})"
    assert cost == f"{since_alert}{steps}"


async def test_the_end_of_a_run_is_reported_quietly(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers()):
        journal.record_event("run_finished", run="demo")
        await clock.advance(10)
    ((_, content),) = post.sent
    assert (content["title"], content["urgent"]) == ("a run has finished", False)
    assert content["items"][0]["worker"] == "demo"


async def test_a_give_up_waits_for_its_evidence_and_has_what_it_shows(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    def keep(kind: str, action: int | None, line: str) -> None:
        logs = [{"name": "r", "path": "/runs/r.log", "lines": [line]}]
        journal.keep_evidence(1, action, kind, json.dumps({"logs": logs}))

    post = FakePost()
    async with calling(journal, post, receivers()):
        decide(journal)
        keep("act", 1, "KeyError: of the attempt before")
        await clock.advance(1.5)
        assert not post.sent
        keep("gave_up", None, "ValueError: no such dataset")
        await clock.advance(1.5)
        ((_, content),) = post.sent
        decide(journal, worker="rollout-1", fingerprint="other")
        await clock.advance(10)
    assert (content["items"][0]["last_error"], content["items"][0]["log"]) == (
        "ValueError: no such dataset",
        "/runs/r.log",
    )
    assert "last_error" not in post.sent[1][1]["items"][0]


async def test_a_give_up_has_the_cause_that_was_proved_before_the_restarts(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post, wait = FakePost(), "process 7 of trainer waits for a lock at mytrain.py:28"
    stuck = {"seen": {"runs": {"demo": {"stuck": True, "waits": wait}}}}
    async with calling(journal, post, receivers()):
        decide(journal, Decision(Verdict.ACT, "restart"), fingerprint=LATER)
        journal.keep_evidence(1, None, "act", json.dumps(stuck))
        number = journal.record_intent(1, ROLLOUT, "restart", ())
        journal.record_result(number, "done", started_by="us", processes=[])
        journal.record_outcome(number, "healed", seconds=4)
        journal.record_alerts([make_alert(firing=False, fingerprint=LATER)])
        clock.pass_by(600)
        decide(journal, starts_at=clock.now())
        journal.keep_evidence(2, None, "gave_up", json.dumps({"seen": {"runs": {"demo": {}}}}))
        await clock.advance(10)
    (item,) = (
        one for _, content in post.sent for one in content["items"] if "abandoned" in one["title"]
    )
    assert item["cause"].startswith(f"{wait} (seen 20")
    assert item["tried"] == "restart healed in the hour before"


async def test_a_message_says_of_one_incident_its_latest_state(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    """Not `operator needed` and `Nobody needs to` of the same incident, and not as urgent."""
    post = FakePost(error=NotDeliveredError("no answer"))
    async with calling(journal, post, receivers()):
        decide(journal, Decision(Verdict.REFUSE, "processes_differ"))
        await clock.advance(EVIDENCE_SECONDS + 1)
        decide(journal, Decision(Verdict.ACT, "restart"))
        number = journal.record_intent(1, ROLLOUT, "restart", ())
        journal.record_result(number, "done", started_by="us", processes=[])
        journal.record_outcome(number, "healed", seconds=4)
        decide(journal, GAVE_UP, worker="trainer", fingerprint=LATER)
        await clock.advance(EVIDENCE_SECONDS + 1)
        post.error = None
        await clock.advance(60)
    ((_, content),) = post.sent
    title = "incident abandoned, operator needed (and 1 more)"
    assert (content["title"], content["urgent"]) == (title, True)
    assert [(one["title"], one["who_acts"]) for one in content["items"]] == [
        ("incident abandoned, operator needed", "You, now"),  # of another incident
        ("healed", "Nobody needs to"),
    ]
    assert content["items"][1]["before"] == "not healed before an operator changes something"
    assert results(journal)["sent"] == 3


@pytest.mark.parametrize("resolved", [False, True])
async def test_what_is_still_true_of_an_incident_outlasts_what_came_after(
    journal: Journal, clock: FakeClock, calling: Calling, *, resolved: bool
) -> None:
    loop: dict[str, Any] = {"alertname": "TrainingWorkerRestartLoop", "fingerprint": LATER}
    post = FakePost(error=NotDeliveredError("no answer"))
    async with calling(journal, post, receivers()):
        decide(journal, Decision(Verdict.ACT, "restart"), alertname="TrainingWorkerGone")
        number = journal.record_intent(1, ROLLOUT, "restart", ())
        decide(journal, HOLD, **loop)
        await clock.advance(2)
        journal.record_result(number, "done", started_by="us", processes=[])
        journal.record_outcome(number, "healed", seconds=4)
        if resolved:
            journal.record_alerts([make_alert(firing=False, **loop)])
        await clock.advance(2)
        post.error = None
        await clock.advance(60)
    ((_, content),) = post.sent
    (item,) = content["items"]
    assert item["incident"] == "#1"
    blocked = "restarted again and again"
    if resolved:
        assert (content["title"], content["urgent"], item["before"]) == ("healed", False, blocked)
    else:
        assert content["title"] == f"{blocked}, operator needed"
        assert (content["urgent"], item["since_then"]) == (True, "healed")


@pytest.mark.parametrize("pause", [1, 10])
async def test_nobody_reads_healed_while_the_operator_is_needed_for_the_same_worker(
    journal: Journal, clock: FakeClock, calling: Calling, pause: float
) -> None:
    """Who reads the newest message alone would go back to sleep: it is sent at the end of all."""
    post, needed = FakePost(), "restarted again and again, operator needed"
    loop: dict[str, Any] = {"alertname": "TrainingWorkerRestartLoop", "fingerprint": LATER}
    async with calling(journal, post, receivers()):
        decide(journal, Decision(Verdict.ACT, "restart"))
        number = journal.record_intent(1, ROLLOUT, "restart", ())
        decide(journal, HOLD, **loop)
        await clock.advance(pause)
        journal.record_result(number, "done", started_by="us", processes=[])
        journal.record_outcome(number, "healed", seconds=8.5)
        await clock.advance(60)
        assert post.titles() == [needed]
        journal.record_alerts([make_alert(firing=False, **loop)])
        await clock.advance(60)
        assert post.titles() == [needed]  # the next loop may have begun
        await clock.advance(LOOP_SECONDS)
    assert post.titles() == ([needed] if pause < EVIDENCE_SECONDS else [needed, "healed"])
    assert "dropped" not in results(journal)


async def test_what_an_operator_approved_in_mode_observe_is_reported_as_that(
    journal: Journal, clock: FakeClock
) -> None:
    post = FakePost()
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    notifier = Notifier(receivers(), outbox_of(journal), post, clock=clock, mode="observe")
    async with going_on(notifier.run()):
        decide(journal, Decision(Verdict.WAIT, "observe_mode"))
        with journal._file.transaction() as db:
            approve(db, clock.now(), 1, "ann")
        number = journal.record_intent(1, ROLLOUT, "restart", ())
        journal.record_result(number, "done", started_by="us", processes=[])
        journal.record_outcome(number, "healed", seconds=4)
        await clock.advance(10)
        decide(journal, worker="trainer", fingerprint=LATER)
        await clock.advance(10)
    modes = [content["items"][0]["mode"] for _, content in post.sent]
    assert modes == ["observe (an operator approved the action)", "observe (no actions are taken)"]
