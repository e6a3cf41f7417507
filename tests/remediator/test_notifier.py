"""A person is called once for each thing, until it has arrived, whatever happens meanwhile."""

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
from tests.remediator.conftest import (
    LATER,
    NOW,
    ROLLOUT,
    FakeClock,
    InlineExecutor,
    Scene,
    Stage,
    going_on,
    make_alert,
)
from tests.remediator.test_journalfile import VERSION_1

from trainwarden_remediator.decision import Decision, Verdict
from trainwarden_remediator.exceptions import JournalError, NotDeliveredError
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.notifying import outbox
from trainwarden_remediator.notifying.forms import Request
from trainwarden_remediator.notifying.models import Notify, Receiver
from trainwarden_remediator.notifying.notifier import GAP_SECONDS, LONGEST_WAIT, Notifier

GAVE_UP = Decision(Verdict.REFUSE, "ladder_exhausted")
HOLD = Decision(Verdict.ACT, "hold")


def receivers(*names: str, **changes: Any) -> Notify:
    given = {key: changes.pop(key) for key in ("quiet", "patience") if key in changes}
    content = {"kind": "json", "url": "http://127.0.0.1:1/", **changes}
    each = [{"name": name, **content} for name in names or ("ops",)]
    return Notify.model_validate({"receivers": each, "box": "b", **given})


@dataclass
class FakePost:
    """Keeps what was sent; `error` is raised instead, `hangs` waits for ever."""

    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    error: NotDeliveredError | None = None
    hangs: tuple[str, ...] = ()
    tried: int = 0

    async def __call__(self, receiver: Receiver, request: Request) -> None:
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
    async def begin(journal: Journal, post: FakePost, notify: Notify) -> AsyncIterator[Notifier]:
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
        notifier = Notifier(notify, journal.outbox, post, clock=clock, mode="act")
        async with going_on(notifier.run()):
            await clock.settle()
            yield notifier

    return begin


def decide(journal: Journal, decision: Decision = GAVE_UP, **alert: Any) -> None:
    """Hear of an alert, and come to a decision about it."""
    heard = make_alert(**alert)
    journal.hear([heard])
    incident = next(
        one
        for one in journal.open_incidents()
        if (one.fingerprint, one.starts_at) == (heard.fingerprint, heard.starts_at)
    )
    journal.decided(incident, decision)


def results(journal: Journal) -> dict[str, float]:
    return {labels[1]: n for labels, n in journal.tallies().get("notifications", {}).items()}


async def test_a_person_is_called_once_when_it_is_given_up(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers()):
        decide(journal)
        await clock.advance(300)
    ((name, content),) = post.sent
    assert (name, content["occasions"], content["urgent"]) == ("ops", ["gave_up"], True)
    assert content["items"][0]["worker"] == "demo/rollout-0"
    assert results(journal) == {"sent": 1}


async def test_what_was_told_is_not_told_again_by_a_program_started_anew(
    tmp_path: Path, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    for _ in range(20):
        journal = Journal(tmp_path / "own.db", clock=clock)
        async with calling(journal, post, receivers()):
            if not post.sent:
                decide(journal)
            await clock.advance(GAP_SECONDS + 1)
        journal.close()
    assert post.titles() == ["gave up, a person is needed"]


async def test_a_message_that_could_not_be_sent_is_sent_after_a_start_anew(
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
    assert post.titles() == ["gave up, a person is needed"]
    assert results(journal) == {"failed": away.tried, "sent": 1}
    journal.close()


async def test_a_loop_that_comes_and_goes_calls_seldom_and_not_every_17_seconds(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers(quiet="5m")):
        for _ in range(2 * 300 // 17):
            decide(journal, HOLD, starts_at=clock.now(), alertname="TrainingWorkerRestartLoop")
            await clock.advance(17)
    assert len(post.sent) == 2
    assert all(content["occasions"] == ["held"] for _, content in post.sent)


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


async def test_a_storm_is_told_in_few_messages(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers()):
        for number in range(30):
            decide(journal, fingerprint=f"{number:016x}", worker=f"w{number}")
        await clock.advance(60)
    assert len(post.sent) == 1
    assert post.titles() == ["30 things to tell"]
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
        await clock.advance(4 * LONGEST_WAIT)
        assert 3 <= post.tried - before <= 8
        post.error = None
        await clock.advance(LONGEST_WAIT + 2)
    assert post.titles() == ["gave up, a person is needed"]


async def test_who_wants_to_be_left_alone_is(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost(error=NotDeliveredError("answered 429", after=600))
    async with calling(journal, post, receivers()):
        decide(journal)
        await clock.advance(590)
        assert post.tried == 1
        await clock.advance(20)
        assert post.tried == 2


async def test_one_that_hangs_keeps_nobody_else_from_being_called(
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
    post = FakePost(error=NotDeliveredError("answered 400", refused=True))
    async with calling(journal, post, receivers()):
        decide(journal)
        await clock.advance(2)
        post.error = None
        await clock.advance(10)
    ((_, content),) = post.sent
    assert content["items"] == [{"title": "gave up, a person is needed"}]


async def test_what_cannot_be_delivered_is_dropped_in_the_end_and_counted(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost(error=NotDeliveredError("answered 503"))
    notify = receivers(patience="10m")
    async with calling(journal, post, notify):
        decide(journal)
        await clock.advance(599)
        assert journal.outbox.queues(notify.receivers)["ops"] is not None
        await clock.advance(5)
        tried = post.tried
        await clock.advance(2 * LONGEST_WAIT)
    assert post.tried == tried
    assert results(journal)["dropped"] == 1
    assert journal.outbox.queues(notify.receivers) == {"ops": None}


async def test_a_queue_that_is_full_keeps_what_needs_a_person(
    journal: Journal, clock: FakeClock, calling: Calling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "LONGEST_QUEUE", 4)
    monkeypatch.setattr(outbox, "LINES_AT_ONCE", 5)
    post = FakePost(error=NotDeliveredError("answered 503"))
    notify = receivers(about=["gave_up", "acted"])
    async with calling(journal, post, notify):
        decide(journal)
        for _ in range(20):
            journal.intend(1, ROLLOUT, "restart", [])
        await clock.advance(10)
        queue = journal.outbox.queues(notify.receivers)["ops"]
        post.error = None
        await clock.advance(60)
    assert queue is not None
    assert queue.waiting == 4
    assert results(journal)["dropped"] == 17
    assert post.sent[0][1]["occasions"] == ["gave_up", "acted"]


async def test_a_receiver_hears_of_nothing_but_what_it_is_told_of(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers(about=["healed"])):
        decide(journal)
        action = journal.intend(1, ROLLOUT, "restart", [])
        await clock.advance(10)
        assert not post.sent
        journal.finished(action, "done", started_by="trainwarden", processes=[1])
        journal.verified(action, "healed", seconds=4)
        await clock.advance(10)
    assert post.titles() == ["healed"]


async def test_a_receiver_that_is_added_is_not_told_of_the_past(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, Notify()) as notifier:
        decide(journal)
        await clock.advance(5)
        notifier.use(receivers(), mode="act")
        await clock.advance(5)
        assert not post.sent
        decide(journal, worker="trainer", fingerprint=LATER)
        await clock.advance(5)
    assert len(post.sent) == 1


async def test_what_waits_for_one_that_is_no_receiver_any_more_is_let_go(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost(error=NotDeliveredError("answered 404"))
    async with calling(journal, post, receivers("old")) as notifier:
        decide(journal)
        await clock.advance(5)
        notifier.use(receivers("new"), mode="act")
        post.error = None
        await clock.advance(600)
        notifier.use(receivers("old"), mode="act")
        await clock.advance(600)
    assert not post.sent
    assert "dropped" not in results(journal)


async def test_an_address_that_was_mended_is_tried_at_once(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost(error=NotDeliveredError("answered 404", after=3000))
    async with calling(journal, post, receivers()) as notifier:
        decide(journal)
        await clock.advance(5)
        post.error = None
        notifier.use(receivers(url="http://127.0.0.1:2/"), mode="act")
        await clock.advance(2)
    assert len(post.sent) == 1


async def test_what_has_arrived_is_not_sent_again_while_that_cannot_be_written_down(
    journal: Journal, clock: FakeClock, calling: Calling, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = FakePost()
    full = {"disk": True}
    settle = journal.outbox.settle

    def refuse(*given: Any) -> None:
        if full["disk"]:
            raise JournalError("disk full")
        settle(*given)

    monkeypatch.setattr(journal.outbox, "settle", refuse)
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
            patch.setattr(journal.outbox, "collect", starve)
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
            patch.setattr(journal.outbox, "waiting", starve)
            decide(journal)
            await clock.advance(10)
            assert post.sent == []
        await clock.advance(60)
    assert len(post.sent) == 1
    told = [vars(one) for one in caplog.records if one.msg == "message put off"]
    assert [(one["receiver"], one["error"]) for one in told] == [("ops", "no memory")] * 2


async def test_the_error_of_a_receiver_is_logged_once_and_names_it(
    journal: Journal, clock: FakeClock, calling: Calling, caplog: pytest.LogCaptureFixture
) -> None:
    post = FakePost(error=NotDeliveredError("answered 404"))
    async with calling(journal, post, receivers()):
        decide(journal)
        await clock.advance(1000)
    (record,) = (one for one in caplog.records if one.msg == "message not delivered")
    assert vars(record)["receiver"] == "ops"


async def test_what_the_engine_gives_up_is_told(stage: Stage, calling: Calling) -> None:
    post = FakePost()
    scene: Scene
    async with stage(attempts=1) as scene, calling(scene.journal, post, receivers()):
        scene.action.heal = {"resident_bytes": 9e9}
        scene.hear()
        await scene.pass_time(900)
        assert "attempts_exhausted" in scene.told()
    ((_, content),) = post.sent
    assert content["items"][0]["tried"] == "restart not healed"


async def test_that_a_person_was_called_is_nothing_that_was_tried(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers(about=["asked"])):
        journal.hear([make_alert()])
        (incident,) = journal.open_incidents()
        journal.asked(incident, 0)
        await clock.advance(5)
    ((_, content),) = post.sent
    assert (content["occasions"], content["items"][0]["worker"]) == (["asked"], "demo/rollout-0")
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
        assert not journal.outbox.collect(receivers())
        assert journal.outbox.waiting("ops") == ()
        decide(journal)
        journal.outbox.collect(receivers())
        assert len(journal.outbox.waiting("ops")) == 1


def test_what_happened_while_nobody_looked_is_told_late_and_says_when(
    tmp_path: Path, clock: FakeClock
) -> None:
    with closing(Journal(tmp_path / "own.db", clock=clock)) as journal:
        decide(journal)
    clock.pass_by(3600)
    with closing(Journal(tmp_path / "own.db", clock=clock)) as journal:
        journal.outbox.collect(receivers())
        journal.outbox.expire(receivers())
        (notice,) = journal.outbox.waiting("ops")
        assert notice.told.at == NOW
        clock.pass_by(2 * 86400)
        journal.outbox.expire(receivers())
        assert journal.outbox.waiting("ops") == ()


def test_notices_know_since_when_they_wait(journal: Journal, clock: FakeClock) -> None:
    notify = receivers()
    decide(journal)
    clock.pass_by(50)
    decide(journal, worker="trainer", fingerprint=LATER)
    journal.outbox.collect(notify)
    queue = journal.outbox.queues(notify.receivers)["ops"]
    assert queue is not None
    assert (queue.waiting, queue.since) == (2, NOW)
    assert [notice.told.worker for notice in journal.outbox.waiting("ops")] == [
        "rollout-0",
        "trainer",
    ]
