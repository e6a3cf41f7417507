"""What waits is sent as it is true then, and not at all once an operator has answered it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock, InlineExecutor
from tests.remediator.fakes import FakeObserver, outbox_of
from tests.remediator.notify.test_notifier import HOLD, FakePost, decide, receivers, results
from tests.remediator.samples import LATER, NOW, ROLLOUT, announced, make_setup, make_worker
from tests.remediator.stage import going_on

from trainwarden_exporter.processes.announcements import AnnouncedRuns
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.exceptions import NotDeliveredError
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.model import BLOCKED_SECONDS, Decision, Verdict
from trainwarden_remediator.notify.answered import as_of_now
from trainwarden_remediator.notify.held_back import FRESH_SECONDS, is_overtaken
from trainwarden_remediator.notify.messages import Notification
from trainwarden_remediator.notify.notifier import Notifier


async def sent_late(journal: Journal, clock: FakeClock, then: Setup, before: Setup) -> FakePost:
    """Sends what the journal has to a receiver that answers only once it is as in `then`."""
    post, now = FakePost(error=NotDeliveredError("no answer")), before

    async def of_now(one: Notification) -> Notification | None:
        return as_of_now(one, now, ())

    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    notifier = Notifier(
        receivers(), outbox_of(journal), post, clock=clock, mode="act", as_of_now=of_now
    )
    async with going_on(notifier.run()):
        await clock.advance(30)
        post.error, now = None, then
        await clock.advance(60)
    return post


@pytest.mark.parametrize(
    ("decision", "alert", "false"),
    [
        (HOLD, {"alertname": "TrainingWorkerRestartLoop"}, True),
        (Decision(Verdict.REFUSE, "attempts_exhausted"), {}, True),
        (HOLD, {"alertname": "TrainingDiskFilling", "worker": ""}, False),
    ],
)
@pytest.mark.parametrize("stops", [True, False])
async def test_a_call_about_what_an_operator_has_stopped_since_is_not_sent(
    tmp_path: Path,
    journal: Journal,
    clock: FakeClock,
    decision: Decision,
    alert: dict[str, Any],
    *,
    false: bool,
    stops: bool,
) -> None:
    runs = make_setup(tmp_path, "/".join(ROLLOUT))
    stopped = replace(make_setup(tmp_path, "other/trainer"), stopped=frozenset({ROLLOUT}))
    decide(journal, decision, **alert, fingerprint=LATER)
    post = await sent_late(journal, clock, stopped if stops else runs, runs)
    assert len(post.sent) == (0 if stops and false else 1)
    assert outbox_of(journal).pending("ops") == ()
    assert "dropped" not in results(journal)


@pytest.mark.parametrize(
    ("then", "called"),
    [([], 0), ([Hold(run="other")], 0), ([Hold(until=NOW + 9000)], 1), ([Hold(run="demo")], 1)],
)
async def test_a_call_about_a_hold_that_was_lifted_since_is_not_sent(
    tmp_path: Path, journal: Journal, clock: FakeClock, then: list[Hold], called: int
) -> None:
    post, holds, runs = FakePost(error=NotDeliveredError("no")), [Hold()], make_setup(tmp_path)

    async def of_now(one: Notification) -> Notification | None:
        return as_of_now(one, runs, holds)

    outbox = outbox_of(journal, *holds)
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    notifier = Notifier(receivers(), outbox, post, clock=clock, mode="act", as_of_now=of_now)
    async with going_on(notifier.run()):
        decide(journal, Decision(Verdict.WAIT, "held"))
        await clock.advance(BLOCKED_SECONDS + 20)
        assert post.tried
        post.error, holds[:] = None, then
        await clock.advance(60)
        assert len(post.sent) == called
        # What was not sent is no reason not to call about the next hold.
        holds[:] = [Hold()]
        decide(journal, Decision(Verdict.ACT, "restart"))
        decide(journal, Decision(Verdict.WAIT, "held"))
        await clock.advance(BLOCKED_SECONDS + 20)
    assert len(post.sent) == 1


@pytest.mark.parametrize("stops", [True, False])
async def test_a_server_that_was_stopped_since_is_not_named_as_what_still_runs(
    tmp_path: Path, journal: Journal, clock: FakeClock, *, stops: bool
) -> None:
    finished = announced(state="finished")
    runs = make_setup(tmp_path)
    server = announced(worker="server", state="stopped" if stops else "running")
    before, then = (
        replace(runs, announced=AnnouncedRuns({**finished, **one}))
        for one in (announced(worker="server"), server)
    )
    facts = {"run": "demo", "step": 5, "total": None, "rings": True}
    stop = {"still_run": ["server"], "stop": "trainwarden stop demo"}
    journal.record_event("run_finished", **facts, **stop)
    post = await sent_late(journal, clock, then, before)
    ((_, content),) = post.sent
    named = "" if stops else "; server still runs: `trainwarden stop demo` ends it"
    assert content["items"][0]["what"] == f"the run has finished at step 5{named}"


async def test_a_run_whose_process_does_not_end_is_not_reported_once_it_is_stopped(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    runs = make_setup(tmp_path, "/".join(ROLLOUT))
    stopped = replace(make_setup(tmp_path, "other/trainer"), stopped=frozenset({ROLLOUT}))
    journal.record_event("run_finished", run="demo", step=5, total=5, unended="it waits", stop="")
    assert (await sent_late(journal, clock, stopped, runs)).sent == []


def test_a_healing_from_before_a_start_by_an_operator_is_no_news(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    decide(journal, Decision(Verdict.ACT, "restart"))
    number = journal.record_intent(1, ROLLOUT, "restart", ())
    journal.record_result(number, "done", started_by="us", processes=[])
    journal.record_outcome(number, "healed", seconds=4)
    outbox = outbox_of(journal)
    outbox.collect(receivers())
    (one,) = outbox.pending("ops")
    own = announced(worker=ROLLOUT.worker, announced_at=clock.now() + 5)
    started = replace(make_setup(tmp_path), announced=AnnouncedRuns(own))
    clock.pass_by(FRESH_SECONDS + 1)
    healthy = FakeObserver({ROLLOUT: make_worker(memory_limit_bytes=None)})
    seen = asyncio.run(healthy.observe())
    assert not is_overtaken(one.event, seen, make_setup(tmp_path), clock.now())
    assert is_overtaken(one.event, seen, started, clock.now())
