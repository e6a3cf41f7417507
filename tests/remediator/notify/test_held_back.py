"""No message says that nobody needs to act while an operator is needed, or after a new failure."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock, InlineExecutor
from tests.remediator.fakes import FakeObserver, outbox_of
from tests.remediator.notify.test_notifier import HOLD, Calling, FakePost, decide, receivers
from tests.remediator.samples import LATER, ROLLOUT, make_alert, make_setup, make_worker
from tests.remediator.stage import going_on

from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.journal.database import open_database
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.model import Decision, Verdict
from trainwarden_remediator.notify.held_back import is_overtaken
from trainwarden_remediator.notify.messages import Notification
from trainwarden_remediator.notify.notifier import Notifier
from trainwarden_remediator.notify.outbox import LOOP_PAUSE_SECONDS, Outbox
from trainwarden_remediator.notify.waiting import describe_waiting
from trainwarden_remediator.observation.model import RunState, ServerState
from trainwarden_remediator.policy.failing_starts import LOOP_SECONDS

LOOP: dict[str, Any] = {"alertname": "TrainingWorkerRestartLoop", "fingerprint": LATER}
NEEDED = "restarted again and again, operator needed"
UNLIKE = Decision(Verdict.REFUSE, "processes_differ")
UNLIKE_TITLE = "not healed before an operator changes something"


def restart(journal: Journal, clock: FakeClock) -> int:
    decide(journal, Decision(Verdict.ACT, "restart"), starts_at=clock.now())
    number = journal.record_intent(journal.open_incidents()[-1].id, ROLLOUT, "restart", ())
    journal.record_result(number, "done", started_by="us", processes=[])
    return number


async def test_what_is_held_back_is_neither_late_nor_unreached(
    tmp_path: Path, clock: FakeClock, calling: Calling
) -> None:
    path, post = tmp_path / "own.db", FakePost()
    journal = Journal(path, clock=clock)
    async with calling(journal, post, receivers()):
        number = restart(journal, clock)
        decide(journal, HOLD, **LOOP)
        await clock.advance(10)
        journal.record_outcome(number, "healed", seconds=8.5)
        await clock.advance(300)
        assert post.titles() == [NEEDED]
        assert outbox_of(journal).queue_states(receivers().receivers) == {"ops": None}
        with open_database(path, mode="ro") as connection:
            assert list(describe_waiting(connection, clock.now())) == []
    journal.close()


async def test_a_disk_that_is_full_again_after_a_healing_rings_again_and_once(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    disk: dict[str, Any] = {"alertname": "TrainingDiskFilling", "worker": "", "fingerprint": LATER}
    post, blocked = FakePost(), "restarts blocked by this alert, operator needed"

    async def fires(**alert: Any) -> None:
        """It comes and goes, and nobody hears that it has ended."""
        for _ in range(3):
            began = clock.now()
            decision = UNLIKE if alert["worker"] else HOLD
            decide(journal, decision, starts_at=began, **alert)
            await clock.advance(30)
            journal.record_alerts([make_alert(firing=False, starts_at=began, **alert)])
            await clock.advance(30)

    async def heal() -> None:
        journal.record_outcome(restart(journal, clock), "healed", seconds=4.4)
        await clock.advance(30)

    async with calling(journal, post, receivers()):
        for _ in range(2):
            await fires(**disk)
            await heal()
        assert post.titles() == [blocked, "healed"] * 2
        for _ in range(2):  # what has healed is another worker
            await fires(alertname="TrainingWorkerGone", worker="trainer", fingerprint=LATER)
            await heal()
    assert post.titles()[4:] == [UNLIKE_TITLE, "healed", "healed again and again, operator needed"]


async def test_a_healing_that_nobody_hears_of_makes_no_repetition_news(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers()):
        for _ in range(3):
            began, number = clock.now(), restart(journal, clock)
            gone: dict[str, Any] = {"alertname": "TrainingWorkerGone", "fingerprint": LATER}
            decide(journal, UNLIKE, starts_at=began, **gone)
            await clock.advance(10)
            journal.record_outcome(number, "healed", seconds=8.5)
            await clock.advance(10)
            journal.record_alerts([make_alert(firing=False, starts_at=began, **gone)])
            decide(journal, UNLIKE, starts_at=clock.now(), **gone)
            await clock.advance(40)
            journal.record_alerts([make_alert(firing=False, starts_at=clock.now() - 40, **gone)])
    assert post.titles() == [UNLIKE_TITLE]


def test_what_fails_again_after_an_operator_has_started_it_again_rings(
    journal: Journal, clock: FakeClock
) -> None:
    started = {ROLLOUT: clock.now()}
    outbox = Outbox(journal.file, clock=clock.now, started=lambda key: started.get(key, 0.0))

    def calls(after: float) -> int:
        """An alert calls so many seconds later, and ends."""
        clock.pass_by(after)
        began = clock.now()
        decide(journal, UNLIKE, starts_at=began)
        journal.record_alerts([make_alert(firing=False, starts_at=began)])
        outbox.collect(receivers())
        state = outbox.queue_states(receivers().receivers)["ops"]
        return 0 if state is None else state.pending

    assert [calls(100), calls(100)] == [1, 1]
    started[ROLLOUT] = clock.now()
    assert [calls(LOOP_PAUSE_SECONDS), calls(100)] == [2, 2]
    for _ in range(3):  # as of a script that does not exist, in a loop of a shell
        started[ROLLOUT] = clock.now()
        assert calls(LOOP_PAUSE_SECONDS - 1) == 2


def test_the_journal_names_what_is_pending_without_a_failure(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "own.db"
    journal = Journal(path, clock=clock)
    decide(journal)
    outbox_of(journal).collect(receivers())
    with open_database(path, mode="ro") as connection:
        (line,) = describe_waiting(connection, clock.now() + 5)
    assert line.endswith("(5 s)")
    journal.close()


async def test_a_healing_after_which_the_worker_was_restarted_again_is_not_sent(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post = FakePost()
    async with calling(journal, post, receivers()):
        number = restart(journal, clock)
        decide(journal, HOLD, **LOOP)
        await clock.advance(10)
        journal.record_outcome(number, "healed", seconds=8.5)
        await clock.advance(60)
        journal.record_alerts([make_alert(firing=False, **LOOP)])
        restart(journal, clock)
        await clock.advance(2 * LOOP_SECONDS)
    assert post.titles() == [NEEDED]
    assert journal.counters()["notifications"] == {("ops", "sent"): 1}


async def test_between_two_loops_nothing_says_that_nobody_is_needed(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    """And the second one rings, though it comes within the interval of repetitions."""
    post = FakePost()
    async with calling(journal, post, receivers()):
        restart(journal, clock)
        decide(journal, HOLD, **LOOP)
        await clock.advance(600)
        journal.record_alerts([make_alert(firing=False, **LOOP)])
        for _ in range(3):
            number = restart(journal, clock)
            await clock.advance(20)
            journal.record_outcome(number, "healed", seconds=20)
            await clock.advance(100)
        decide(journal, HOLD, **LOOP, starts_at=clock.now())
        await clock.advance(10)
    assert post.titles() == [NEEDED, NEEDED]
    what = post.sent[0][1]["items"][0]["what"]
    assert what.endswith("about ten minutes after the last start; then it tries again")


async def test_what_was_healed_is_named(
    journal: Journal, clock: FakeClock, calling: Calling
) -> None:
    post, error = FakePost(), "torch.OutOfMemoryError: CUDA out of memory."
    worker = {"processes": 0, "expected": 1, "last_exit_at": clock.now(), "last_exit_code": 1}
    logs = [{"path": "/r.log", "lines": ["step 70", "Traceback (most recent call last):", error]}]
    content = {"seen": {"workers": {"demo/rollout-0": worker}}, "logs": logs}
    async with calling(journal, post, receivers()):
        number = restart(journal, clock)
        incident = journal.open_incidents()[-1].id
        journal.keep_evidence(incident, number, "act", json.dumps(content))
        journal.record_outcome(number, "healed", seconds=8.5)
        journal.keep_evidence(incident, None, "end", "{}")
        await clock.advance(10)
    item = post.sent[0][1]["items"][0]
    assert item["cause"] == "demo/rollout-0 ended with exit status 1"
    assert (item["last_error"], item["log"]) == (error, "/r.log")


def overtaken(
    one: Notification, observer: FakeObserver | None, setup: Setup, clock: FakeClock
) -> bool:
    state = None if observer is None else asyncio.run(observer.observe())
    return is_overtaken(one.event, state, setup, clock.now())


@pytest.mark.parametrize(
    ("changes", "run", "up", "false"),
    [
        ({}, RunState(), True, False),
        ({"processes": 0.0}, RunState(), True, True),
        ({"finished": True}, RunState(), True, True),
        ({"memory_limit_bytes": 5.0, "memory_bytes": 6.0}, RunState(), True, True),
        ({}, RunState(finished=True), True, True),
        ({}, RunState(stuck=True), True, True),
        ({}, RunState(progress_at=1.0, stall_limit=30.0), True, True),
        ({}, RunState(), False, True),
    ],
)
def test_what_is_reported_late_is_healthy_now(
    tmp_path: Path,
    journal: Journal,
    clock: FakeClock,
    changes: dict[str, Any],
    run: RunState,
    *,
    up: bool,
    false: bool,
) -> None:
    journal.record_outcome(restart(journal, clock), "healed", seconds=1)
    outbox = outbox_of(journal)
    outbox.collect(receivers())
    (one,) = outbox.pending("ops")
    setup = make_setup(tmp_path, "/".join(ROLLOUT))
    server = ServerState(
        name="s", worker=ROLLOUT.worker, role="inference", up=up, reason="" if up else "refused"
    )
    observer = FakeObserver(
        {ROLLOUT: make_worker(**{"memory_limit_bytes": None} | changes)},
        runs={"demo": run},
        servers={"demo": (server,)},
    )
    assert not overtaken(one, observer, setup, clock)  # it was verified a moment ago
    clock.pass_by(600)
    assert overtaken(one, observer, setup, clock) == false
    assert overtaken(one, None, setup, clock)  # nobody knows


def test_what_an_operator_has_stopped_is_not_called_healed(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    journal.record_outcome(restart(journal, clock), "healed", seconds=1)
    outbox = outbox_of(journal)
    outbox.collect(receivers())
    (one,) = outbox.pending("ops")
    setup = make_setup(tmp_path, "/".join(ROLLOUT))
    stopped = replace(setup, stopped=frozenset({ROLLOUT}))
    assert not overtaken(one, None, setup, clock)
    assert overtaken(one, None, stopped, clock)


async def test_a_false_healing_is_settled_and_not_sent(journal: Journal, clock: FakeClock) -> None:
    async def is_false(_: Notification) -> None:
        return None

    post = FakePost()
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    outbox = outbox_of(journal)
    notifier = Notifier(receivers(), outbox, post, clock=clock, mode="act", as_of_now=is_false)
    async with going_on(notifier.run()):
        journal.record_outcome(restart(journal, clock), "healed", seconds=1)
        await clock.advance(10)
    assert post.sent == []
    assert outbox.pending("ops") == ()
