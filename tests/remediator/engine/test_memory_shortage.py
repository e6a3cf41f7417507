"""The remediator where there is no memory to be had, for a moment or for good."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.remediator.api.test_webhook import post, running
from tests.remediator.engine.test_crash_recovery import Program
from tests.remediator.fakes import FakeObserver
from tests.remediator.live_host import Box
from tests.remediator.samples import ROLLOUT, TOKEN, TRAINER, delivery, make_alert
from tests.remediator.stage import Scene, Stage
from tests.waiting import until

from trainwarden_exporter.runtime.blocking_thread import SerialThread
from trainwarden_exporter.scrape import exposition
from trainwarden_remediator.actions.base import ActionState
from trainwarden_remediator.api import reports
from trainwarden_remediator.api import webhook as module
from trainwarden_remediator.api.webhook import INLINE_PARSE_BYTES
from trainwarden_remediator.credentials.bearer_tokens import BearerTokens
from trainwarden_remediator.engine import control_loop, executor
from trainwarden_remediator.engine.control_loop import ALIVE_SECONDS, CYCLE_SECONDS
from trainwarden_remediator.exceptions import IntentLostError, JournalError
from trainwarden_remediator.holds import service
from trainwarden_remediator.holds.hold_file import read_holds
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.model import Decision
from trainwarden_remediator.policy.decide import decide
from trainwarden_remediator.telemetry import status_page

DONE = ["alert", "intent", "stop", "start", "done", "healed"]


def starve(*_: Any, **__: Any) -> Any:
    raise MemoryError


class Short:
    """Fails for want of memory, so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            raise MemoryError


async def test_a_turn_without_memory_is_broken_off_and_the_next_acts_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Short(3)

    def decide_if_it_can(*about: Any) -> Decision:
        short()
        return decide(*about)

    monkeypatch.setattr(control_loop, "decide", decide_if_it_can)
    async with stage() as scene:
        scene.hear()
        await scene.clock.advance(2 * CYCLE_SECONDS + 1)
        assert scene.engine.aborted_cycles == 3
        assert scene.action.restarts == []
        await scene.clock.advance(20)
        assert scene.engine.aborted_cycles == 3
        assert scene.done() == DONE
        assert scene.action.restarts == [1]


async def test_nor_is_it_ended_by_want_that_comes_out_of_two_questions_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Short(2)

    async def observe(self: FakeObserver) -> Any:
        short()
        return await real(self)

    real = FakeObserver.observe
    monkeypatch.setattr(FakeObserver, "observe", observe)
    async with stage() as scene:
        scene.hear()
        await scene.clock.advance(20)
        assert scene.engine.aborted_cycles == 2
        assert scene.done() == DONE


async def test_a_remediator_that_never_has_memory_is_not_alive_and_is_restarted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_nothing(*_: Any, **__: Any) -> Any:
        raise MemoryError

    async with stage() as scene:
        monkeypatch.setattr(control_loop, "read_state", read_nothing)
        await scene.clock.advance(ALIVE_SECONDS + CYCLE_SECONDS)
        assert not scene.engine.is_alive()


@pytest.mark.parametrize("before", [True, False])
async def test_an_intent_that_nobody_can_carry_out_ends_it_and_the_next_start_acts_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, before: bool
) -> None:
    """Not to end would leave the run busy for ever with what nobody does."""

    async def begin(scene: Scene) -> None:
        running = scene.engine.run()
        scene.hear()
        with pytest.RaisesGroup(IntentLostError):
            await running

    with monkeypatch.context() as patch:
        if before:
            patch.setattr(Journal, "record_intent", starve)
        else:
            patch.setattr(executor, "EvidenceTrigger", starve)
        scenes: list[Scene] = []
        with suppress(AssertionError):  # the stage asks that its engine goes on
            async with stage(before=scenes.append):
                pass
        await begin(Scene(scenes[0].folder, scenes[0].journal, scenes[0].clock))
    cut_short = [] if before else ["intent", "interrupted"]
    async with stage() as scene:
        await scene.clock.advance(20)
        assert scene.done() == ["alert", *cut_short, *DONE[1:]]
        assert len(scene.action.restarts) == 1


def short_of_threads(scene: Scene, *, times: int) -> None:
    """No thread is to be had for an action, so many times."""
    real, left = scene.context.thread_factory, [None] * times

    def thread_factory(name: str) -> Any:
        if name.startswith("action") and left:
            left.pop()
            raise RuntimeError("can't start new thread")
        return real(name)

    scene.context.thread_factory = thread_factory


async def test_an_action_whose_thread_cannot_be_had_counts_for_nothing_and_is_decided_again(
    stage: Stage,
) -> None:
    async with stage(attempts=1, breaker={"actions": 1}) as scene:
        short_of_threads(scene, times=3)
        scene.hear()
        await scene.clock.settle()
        assert scene.done() == ["alert", "intent", "interrupted"]
        await scene.clock.advance(2 * CYCLE_SECONDS)  # one try each turn, and none between
        assert scene.done() == ["alert", *["intent", "interrupted"] * 3]
        assert scene.action.restarts == []
        assert scene.journal.count_breaker_actions(3600) == 0
        results = [e.facts for e in scene.journal.newest_events(99) if e.kind == "result"]
        assert {one["found"] for one in results} == {"can't start new thread"}
        await scene.clock.advance(20)
        assert scene.done() == ["alert", *["intent", "interrupted"] * 3, *DONE[1:]]
        assert scene.journal.count_breaker_actions(3600) == 1
        assert len(scene.action.restarts) == 1


async def test_but_one_whose_worker_was_ended_before_a_crash_counts(stage: Stage) -> None:
    def cut_short(scene: Scene) -> None:
        scene.journal.record_alerts([make_alert(starts_at=scene.clock.now() - 20)])
        (incident,) = scene.journal.open_incidents()
        number = scene.journal.record_intent(incident.id, ROLLOUT, "restart", [])
        scene.journal.record_step(number, "stop")
        scene.action.stands = ActionState.ENDED
        short_of_threads(scene, times=1)

    async with stage(before=cut_short) as scene:
        await scene.clock.settle()
        assert scene.done() == ["alert", "intent", "stop", "interrupted"]
        assert scene.journal.count_breaker_actions(3600) == 1


async def test_whether_it_saves_is_not_excluded_without_memory_to_ask(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def starve(_: FakeObserver) -> Any:
        raise MemoryError

    async with stage() as scene:
        executor = scene.engine._executor
        target = scene.setup.config.target(TRAINER)
        assert target is not None
        order = executor._action_request(1, "relieve_memory", 0, target, None)
        thread = SerialThread("an act")
        assert await thread.call(executor.action_runner._save_check(order)) is False
        monkeypatch.setattr(FakeObserver, "observe", starve)
        assert await thread.call(executor.action_runner._save_check(order)) is True
        thread.close()


async def test_an_action_that_cannot_be_asked_waits(stage: Stage) -> None:
    async with stage() as scene:
        short, real = Short(1), scene.action.find_instances

        def processes() -> Any:
            short()
            return real()

        vars(scene.action)["find_instances"] = processes
        scene.hear()
        await scene.clock.advance(20)
        assert scene.engine.aborted_cycles == 0
        assert "observation_failed" in scene.journaled()
        assert scene.done() == DONE


# SQLite's own bound: what it asks for beyond that it does not get.
STARVED_JOURNAL = """
import pathlib, sqlite3, sys, time
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.journal import Journal
journal = Journal(pathlib.Path(sys.argv[1]), clock=time.time)
alert = Alert("0" * 16, 1.0, firing=True, labels={"alertname": "A", "x": "y" * (8 << 20)})
journal._file.connection.execute(f"PRAGMA hard_heap_limit = {4 << 20}")
try:
    journal.record_alerts([alert])
except JournalError as error:
    print("reported:", error)
print("left open:", journal._file.connection.in_transaction)
"""


def test_a_journal_without_memory_says_so_and_has_changed_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    command = [sys.executable, "-c", STARVED_JOURNAL, str(path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output == f"reported: {path}: out of memory\nleft open: False\n"
    journal = Journal(path, clock=time.time)
    assert journal.open_incidents() == ()
    journal.close()


class Starving:
    """A connection to a journal that has no memory for statements that begin so."""

    def __init__(self, connection: Any, *words: str, after: bool = False) -> None:
        self._connection = connection
        self._words = words
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> Any:
        fails = statement.startswith(self._words)
        if fails and not self._after:
            raise MemoryError
        done = self._connection.execute(statement, *values)
        if fails:
            raise MemoryError
        return done


@pytest.mark.parametrize("words", [("BEGIN",), ("INSERT",), ("COMMIT",), ("COMMIT", "ROLLBACK")])
def test_whatever_it_has_no_memory_for_the_next_delivery_is_accepted(
    journal: Journal, words: tuple[str, ...]
) -> None:
    file: Any = journal._file
    real = file.connection
    file.connection = Starving(real, *words)
    with pytest.raises(JournalError, match=r"out of memory$"):
        journal.record_alerts([make_alert()])
    file.connection = real
    assert journal.open_incidents() == ()
    journal.record_alerts([make_alert()])
    assert len(journal.open_incidents()) == 1


def test_what_may_be_on_the_disk_is_not_reported_as_failed(journal: Journal) -> None:
    """An intent that was taken for none would keep its run busy with nobody to carry it out."""
    file: Any = journal._file
    real = file.connection
    file.connection = Starving(real, "COMMIT", after=True)
    with pytest.raises(MemoryError):
        journal.record_alerts([make_alert()])
    file.connection = real
    assert len(journal.open_incidents()) == 1


@pytest.mark.parametrize("size", [0, INLINE_PARSE_BYTES], ids=["read at once", "read in a thread"])
@pytest.mark.parametrize(
    "where",
    [
        (BearerTokens, "refresh"),
        (web.Request, "read"),
        (module, "parse_notification"),
        (Journal, "record_alerts"),
    ],
    ids=lambda where: where[1],
)
async def test_a_delivery_without_memory_is_to_be_sent_again_and_nothing_of_it_is_accepted(
    box: Box,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: tuple[Any, str],
    size: int,
) -> None:
    """Alertmanager sends again what is answered 5xx."""
    body = b" " * size + delivery(box.alert())
    async with running(box) as (client, remediator):
        with monkeypatch.context() as patch:
            patch.setattr(*where, starve)
            assert (await post(client, body)).status == 503
        assert remediator.journal.open_incidents() == ()
        (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert line.getMessage() == "out of memory; delivery not accepted"
        assert line.exc_info is None
        assert (await post(client, body)).status == 200
        assert len(remediator.journal.open_incidents()) == 1
        answered = await (await client.get("/metrics")).text()
        for code in (200, 503):
            assert f'trainwarden_remediator_webhooks_total{{code="{code}"}} 1.0\n' in answered


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/metrics", (Journal, "counters")),
        ("/metrics", (exposition, "render")),
        ("/", (status_page, "render")),
        ("/status.json", (status_page, "status_json")),
        ("/report", (BearerTokens, "refresh")),
        ("/report", (reports, "report_nights")),
        ("/report/1", (reports, "report_incident")),
    ],
    ids=lambda given: given if isinstance(given, str) else given[1],
)
async def test_a_page_without_memory_is_to_be_asked_for_again(
    box: Box,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
    where: tuple[Any, str],
) -> None:
    async with running(box) as (client, _):
        assert (await post(client, delivery(box.alert()))).status == 200
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with monkeypatch.context() as patch:
            patch.setattr(*where, starve)
            answer = await client.get(path, headers=headers)
            assert (answer.status, await answer.text()) == (503, "out of memory\n")
        (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert line.getMessage() == "out of memory; request failed"
        assert vars(line)["path"] == path
        assert line.exc_info is None
        assert (await client.get(path, headers=headers)).status == 200


@pytest.mark.parametrize("what", ["hold", "resume"])
@pytest.mark.parametrize("where", [(BearerTokens, "refresh"), (service, "write_event")])
async def test_a_hold_or_its_end_without_memory_is_to_be_asked_for_again(
    box: Box,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    what: str,
    where: tuple[Any, str],
) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with running(box) as (client, remediator):
        assert (await client.post("/-/hold", headers=headers)).status == 200
        with monkeypatch.context() as patch:
            patch.setattr(*where, starve)
            answer = await client.post(f"/-/{what}", headers=headers)
            assert (answer.status, await answer.text()) == (503, "out of memory\n")
        (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert line.getMessage() == f"out of memory; {what} failed"
        assert (await client.post(f"/-/{what}", headers=headers)).status == 200
        held = read_holds(remediator.setup.config.hold_file, time.time())
        assert bool(held) == (what == "hold")


@pytest.fixture
def program(box: Box) -> Iterator[Program]:
    program = Program(box)
    yield program
    program.close()


def test_a_real_remediator_without_memory_for_a_while_goes_on_and_acts_once(
    program: Program,
) -> None:
    """Not even the stack of a thread: what it needs of them it has from the start."""
    worker = program.box.start_worker()
    child = program.start()
    alert = delivery(program.box.alert())
    limit = resource.prlimit(child.pid, resource.RLIMIT_AS)
    used = int(Path(f"/proc/{child.pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(child.pid, resource.RLIMIT_AS, (used // 2, limit[1]))
    storm = b" " * (30 << 20) + alert
    for _ in range(5):
        program.ask("/webhook", storm, timeout=5)
        time.sleep(CYCLE_SECONDS / 2)
    assert child.poll() is None, program.log
    reasons = [event.facts.get("reason") for event in program.box.events()]
    assert set(reasons) <= {None, "observation_failed"}
    resource.prlimit(child.pid, resource.RLIMIT_AS, limit)
    until(lambda: program.ask("/webhook", alert) == 200)
    until(lambda: "healed" in program.box.journaled())
    assert child.poll() is None
    assert worker.wait(60) is not None
    reasons = [event.facts.get("reason") for event in program.box.events()]
    assert "observation_failed" in reasons
    assert program.box.journaled().count("intent") == 1
