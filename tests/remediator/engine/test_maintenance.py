"""What goes on beside the deciding, where it fails."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock, InlineThread
from tests.remediator.fakes import BlindKin, FakeObserver, outbox_of
from tests.remediator.notify.test_notifier import receivers
from tests.remediator.samples import announced, make_setup, make_worker, with_folder
from tests.waiting import DEADLINE_SECONDS

from trainwarden_exporter.processes.announcements import AnnouncedRuns
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import read_process
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.engine.finished_runs import (
    LAST_STEP_SECONDS,
    MISSED_SECONDS,
    RUNS_SECONDS,
    UNENDED_SECONDS,
    FinishedRuns,
)
from trainwarden_remediator.engine.maintenance import PRUNE_SECONDS, Maintenance
from trainwarden_remediator.exceptions import JournalError, ObservationError
from trainwarden_remediator.journal.event_text import describe
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.notify.advice import advice
from trainwarden_remediator.notify.messages import Notification, build_message
from trainwarden_remediator.observation.model import RunState


@pytest.mark.parametrize(
    ("error", "message"),
    [(MemoryError(), "out of memory"), (JournalError("disk full"), "disk full")],
)
async def test_a_journal_that_cannot_be_pruned_is_reported_with_its_reason_and_tried_again(
    *,
    journal: Journal,
    clock: FakeClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    message: str,
) -> None:
    tries: list[int] = []

    def prune(*_: object) -> None:
        tries.append(1)
        raise error

    monkeypatch.setattr(journal, "prune", prune)
    upkeep = Maintenance(_context(make_setup(tmp_path), journal, FakeObserver(), clock))
    running = asyncio.create_task(upkeep.run())
    await clock.settle()
    await clock.advance(PRUNE_SECONDS)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    records = [one for one in caplog.records if one.msg == "journal not pruned"]
    assert [vars(one)["error"] for one in records] == [message, message]
    assert len(tries) == len(records)


@pytest.mark.parametrize(
    ("events", "recorded"), [(["finished"], ["demo", "short"]), (["healed"], [])]
)
async def test_a_run_that_is_seen_to_finish_is_recorded_once_if_a_receiver_wants_to_know(
    *,
    journal: Journal,
    clock: FakeClock,
    tmp_path: Path,
    events: list[str],
    recorded: list[str],
) -> None:
    receiver = {"name": "ops", "kind": "json", "url": "http://127.0.0.1:1/", "events": events}
    observer = FakeObserver(runs={"demo": RunState(), "old": RunState(finished=True)})
    process = read_process(os.getpid())
    assert process is not None
    own = tuple(process.identity)
    left = AnnouncedRuns(announced(state="finished", goes_on=(own, (own[0], 1))))
    setup = make_setup(tmp_path, notify={"receivers": [receiver]})
    maintenance = Maintenance(_context(replace(setup, announced=left), journal, observer, clock))
    running = asyncio.create_task(maintenance.run())
    await clock.settle()
    await clock.advance(RUNS_SECONDS)
    observer.runs["demo"] = RunState(finished=True)
    observer.blind = ObservationError("no answer")
    await clock.advance(RUNS_SECONDS)
    observer.blind = None
    observer.runs["short"] = RunState(
        finished=True, step=59, total_steps=1000
    )  # it began and ended in between
    await clock.advance(3 * RUNS_SECONDS)
    async with asyncio.timeout(DEADLINE_SECONDS):  # each is recorded by a thread
        while _finished(journal) != recorded:
            await clock.advance(RUNS_SECONDS)
    await clock.advance(3 * RUNS_SECONDS)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert _finished(journal) == recorded
    gone_on = [describe(one) for one in journal.newest_events(100) if one.run == "demo"]
    goes_on = "its command has ended, and 1 process of it goes on, which nobody watches"
    assert all(text.startswith(goes_on) for text in gone_on)
    texts = [describe(one) for one in journal.newest_events(100) if one.run == "short"]
    assert texts == ["the run has ended early at step 59 of 1,000"] * ("short" in recorded)


@pytest.mark.parametrize(
    ("ended", "events", "reported"),
    [
        (60, [(0, "start", "demo")], True),
        (60, [(0, "start", "demo"), (61, "run_finished", "other")], True),
        (60, [(0, "run_finished", "demo")], True),  # of an earlier start
        (60, [(0, "start", "demo"), (61, "run_finished", "demo")], False),
        (60, [(0, "start", "demo"), (60 + MISSED_SECONDS, "start", "demo")], False),
        (60, [(61, "start", "demo")], False),  # it ended before there was this journal
    ],
)
async def test_an_end_that_was_missed_between_two_starts_is_reported(
    tmp_path: Path,
    journal: Journal,
    clock: FakeClock,
    ended: float,
    events: list[tuple[float, str, str]],
    *,
    reported: bool,
) -> None:
    began = clock.now()
    for at, kind, run in events:
        clock.pass_by(began + at - clock.now())
        journal.record_event(kind, run=run)
    clock.pass_by(max(began + 62 - clock.now(), 0))
    receiver = {"name": "ops", "kind": "json", "url": "http://127.0.0.1:1/"}
    setup = make_setup(tmp_path, notify={"receivers": [receiver]})
    runs = AnnouncedRuns(announced(state="finished", ended_at=began + ended))
    finished = FinishedRuns(
        _context(
            replace(setup, announced=runs),
            journal,
            FakeObserver(runs={"demo": RunState(finished=True, step=50, total_steps=50)}),
            clock,
        )
    )
    known = len(_finished(journal))
    running = asyncio.create_task(finished.run())
    async with asyncio.timeout(DEADLINE_SECONDS):  # threads read and write the journal
        while finished._known is None or (reported and len(_finished(journal)) == known):
            await clock.settle()
    await clock.advance(RUNS_SECONDS)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (len(_finished(journal)) > known) is reported


async def test_the_end_of_a_run_without_a_step_is_recorded_once_for_each_of_its_starts(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    key = WorkerKey("silent", "trainer")
    receiver = {"name": "ops", "kind": "json", "url": "http://127.0.0.1:1/"}
    setup = make_setup(tmp_path, notify={"receivers": [receiver]})
    observer = FakeObserver(workers={key: make_worker()})
    task = asyncio.create_task(Maintenance(_context(setup, journal, observer, clock)).run())
    await clock.settle()
    for count in (1, 2):
        observer.workers[key] = make_worker()
        await clock.advance(2 * RUNS_SECONDS)
        assert len(_finished(journal)) == count - 1
        observer.workers[key] = make_worker(processes=0, finished=True)
        async with asyncio.timeout(DEADLINE_SECONDS):  # it is recorded by a thread
            while len(_finished(journal)) < count:
                await clock.advance(RUNS_SECONDS)
        await clock.advance(2 * RUNS_SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    found = [describe(one) for one in journal.newest_events(100) if one.kind == "run_finished"]
    assert found == ["the run has finished"] * 2


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (50, "the run has finished at step 50 of 50"),
        (49, "its command has ended, and 1 process of it goes on, which nobody watches"),
    ],
)
async def test_a_run_with_all_its_steps_has_finished_though_a_process_of_it_lives_on(
    tmp_path: Path, journal: Journal, clock: FakeClock, step: int, text: str
) -> None:
    """Such as a tracker: what lives on trains no more."""
    process = read_process(os.getpid())
    assert process is not None
    left = AnnouncedRuns(announced(state="finished", goes_on=(tuple(process.identity),)))
    receiver = {"name": "ops", "kind": "json", "url": "http://127.0.0.1:1/"}
    setup = make_setup(tmp_path, notify={"receivers": [receiver]})
    observer = FakeObserver(runs={"demo": RunState()})
    maintenance = Maintenance(_context(replace(setup, announced=left), journal, observer, clock))
    running = asyncio.create_task(maintenance.run())
    await clock.settle()
    await clock.advance(RUNS_SECONDS)
    observer.runs["demo"] = RunState(finished=True, step=step, total_steps=50)
    found = await _recorded_end(journal, clock, running)
    assert describe(found).startswith(text)


async def test_a_run_that_finishes_with_a_loss_of_nan_calls_for_a_start_from_before_it(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    command = {"argv": ("python", "a.py"), "options": ("--name", "demo"), "cwd": "/w"}
    finished = AnnouncedRuns(announced(state="finished", **command))
    receiver = {"name": "ops", "kind": "json", "url": "http://127.0.0.1:1/"}
    setup = replace(
        make_setup(tmp_path, "demo/trainer", notify={"receivers": [receiver]}), announced=finished
    )
    setup = with_folder(setup, tmp_path)
    observer = FakeObserver(runs={"demo": RunState()})
    context = _context(setup, journal, observer, clock)
    task = asyncio.create_task(Maintenance(context).run())
    await clock.settle()
    await clock.advance(RUNS_SECONDS)
    observer.runs["demo"] = RunState(
        finished=True,
        step=400,
        total_steps=400,
        finite_until={("trainer", "loss"): 39.0, ("trainer", "kl"): 5.0},
    )
    found = await _recorded_end(journal, clock, task)
    why = "its loss is NaN or infinite, and was finite until step 39"
    assert describe(found) == (
        f"the run has finished at step 400 of 400, but {why}: what it saved from then on is of no"
        " use"
    )
    call = Notification(1, "ops", "finished", found)
    message = build_message(
        [replace(call, advice=advice(call, setup, ()))], instance="b", mode="act"
    )
    assert message.calls
    assert message.title == "a run has finished with a loss that is not finite"
    assert message.items[0].values["Who acts"] == "You, now"
    assert message.items[0].values["What to do"] == (
        "`trainwarden checkpoints demo` names the checkpoint to go back to. Move the checkpoints"
        " from after the last finite value to another folder, as most scripts go on from the newest"
        " one, and mend the cause, then start it again:"
        " `cd /w && trainwarden run --name demo -- python a.py`."
    )


@pytest.mark.parametrize(
    ("step", "total", "failed"), [(35, 400, True), (35, None, True), (399, 400, False)]
)
async def test_a_run_that_ends_with_an_error_and_steps_left_has_perhaps_failed(
    tmp_path: Path,
    journal: Journal,
    clock: FakeClock,
    step: float,
    total: float | None,
    *,
    failed: bool,
) -> None:
    command = {"argv": ("sh", "a.sh"), "options": ("--name", "demo"), "cwd": "/w", "log": "/l"}
    error = {"final_error": "ConnectionError: token=s3cr3t-Value"}
    receiver = {"name": "ops", "kind": "json", "url": "http://127.0.0.1:1/"}
    setup = replace(
        make_setup(tmp_path, notify={"receivers": [receiver]}),
        announced=AnnouncedRuns(announced(state="finished", **command, **error)),
    )
    observer = FakeObserver(runs={"demo": RunState()})
    task = asyncio.create_task(Maintenance(_context(setup, journal, observer, clock)).run())
    await clock.settle()
    await clock.advance(RUNS_SECONDS)
    observer.runs["demo"] = RunState(finished=True, step=step, total_steps=total)
    found = await _recorded_end(journal, clock, task)
    assert ("perhaps failed" in describe(found)) == failed
    shown = {name: found.facts.get(name) for name in ("last_error", "log", "start")}
    start = "cd /w && trainwarden run --name demo -- sh a.sh"
    known = {"last_error": "ConnectionError: token=[redacted]", "log": "/l", "start": start}
    assert shown == (known if failed else dict.fromkeys(known))


@pytest.mark.parametrize("ends", [True, False])
async def test_a_finished_run_whose_other_commands_still_run_names_them(
    tmp_path: Path, journal: Journal, clock: FakeClock, *, ends: bool
) -> None:
    """`trainwarden run` stops those of its file with the run, but not those of `--detach`."""
    finished = announced(state="finished")
    running = AnnouncedRuns({**finished, **announced(worker="server", state="running")})
    receiver = {"name": "ops", "kind": "json", "url": "http://127.0.0.1:1/"}
    setup = replace(make_setup(tmp_path, notify={"receivers": [receiver]}), announced=running)
    observer = FakeObserver(runs={"demo": RunState()})
    context = _context(setup, journal, observer, clock)
    task = asyncio.create_task(Maintenance(context).run())
    await clock.settle()
    await clock.advance(RUNS_SECONDS)
    observer.runs["demo"] = RunState(finished=True, step=5)
    await clock.advance(RUNS_SECONDS)
    assert not _finished(journal)
    if ends:
        context.setup = replace(setup, announced=AnnouncedRuns(finished))
    found = await _recorded_end(journal, clock, task)
    named = "" if ends else "; server still runs: `trainwarden stop demo` ends it"
    assert describe(found) == f"the run has finished at step 5{named}"


async def test_a_server_that_goes_on_rings_once_and_not_at_each_end_of_its_run(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    trains, finished = announced(), announced(state="finished")
    receiver = {"name": "ops", "kind": "json", "url": "http://127.0.0.1:1/"}
    setup = make_setup(tmp_path, notify={"receivers": [receiver]})
    observer = FakeObserver(runs={"demo": RunState()})
    context = _context(setup, journal, observer, clock)
    task = asyncio.create_task(Maintenance(context).run())
    await clock.settle()
    ends = (1.0, 1.0, 2.0)  # the server was started again before the third
    for count, started in enumerate(ends, start=1):
        server = announced(worker="server", announced_at=started)
        context.setup = replace(setup, announced=AnnouncedRuns({**trains, **server}))
        observer.runs["demo"] = RunState()
        await clock.advance(RUNS_SECONDS)
        context.setup = replace(setup, announced=AnnouncedRuns({**finished, **server}))
        observer.runs["demo"] = RunState(finished=True, step=5)
        async with asyncio.timeout(DEADLINE_SECONDS):  # it is recorded by a thread
            while len(_finished(journal)) < count:
                await clock.advance(RUNS_SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    found = [one for one in journal.newest_events(100)[::-1] if one.kind == "run_finished"]
    calls = [Notification(1, "ops", "finished", one) for one in found]
    messages = [build_message([one], instance="b", mode="act") for one in calls]
    assert [one.calls for one in messages] == [True, False, True]
    named = "the run has finished at step 5; server still runs: `trainwarden stop demo` ends it"
    assert [one.items[0].values["What"] for one in messages] == [named] * 3


def test_what_lives_on_is_reported_though_the_end_of_the_run_was(
    journal: Journal, clock: FakeClock
) -> None:
    notify = receivers()
    outbox = outbox_of(journal)
    waits: dict[str, Any] = {"unended": "it waits"}
    for facts in ({}, waits, {"still_run": ["server"]}, waits):
        journal.record_event("run_finished", run="demo", **facts)
        clock.pass_by(300)
    outbox.collect(notify)
    assert len(outbox.pending("ops")) == 3


@pytest.mark.parametrize(
    ("run", "waits"),
    [
        (RunState(trainer_processes=1, unended="it waits for a thread"), "it waits for a thread"),
        (RunState(trainer_processes=1), "what its processes wait for is not known"),
        (RunState(trainer_processes=0), ""),
    ],
)
async def test_a_finished_run_whose_process_does_not_end_is_reported_once(
    tmp_path: Path, journal: Journal, clock: FakeClock, run: RunState, waits: str
) -> None:
    receiver = {"name": "ops", "kind": "json", "url": "http://127.0.0.1:1/"}
    observer = FakeObserver(runs={"demo": run})
    maintenance = Maintenance(
        _context(make_setup(tmp_path, notify={"receivers": [receiver]}), journal, observer, clock)
    )
    running = asyncio.create_task(maintenance.run())
    await clock.settle()
    await clock.advance(RUNS_SECONDS)
    observer.runs["demo"] = replace(run, finished=True, step=50)
    wanted = ["demo"] * (2 if waits else 1)
    async with asyncio.timeout(DEADLINE_SECONDS):  # each is recorded by a thread
        while _finished(journal) != wanted:
            await clock.advance(RUNS_SECONDS)
    for _ in range(2 * round(UNENDED_SECONDS / RUNS_SECONDS)):
        await clock.advance(RUNS_SECONDS)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    found = [one for one in journal.newest_events(100) if one.kind == "run_finished"]
    texts = [describe(one) for one in found]
    text = f"the run has finished at step 50, and its process does not end: {waits}"
    assert texts == [text, "the run has finished at step 50"][0 if waits else 1 :]
    if waits:
        assert found[0].at - found[1].at >= UNENDED_SECONDS


def test_the_command_that_ends_it_is_named_only_where_it_works(journal: Journal) -> None:
    """`trainwarden stop` knows the runs of `trainwarden run`, and no others."""
    texts = []
    for stop in ("trainwarden stop demo", ""):
        journal.record_event("run_finished", run="demo", step=5, unended="it waits", stop=stop)
        texts.append(describe(journal.newest_events(1)[0]))
    text = "the run has finished at step 5, and its process does not end: it waits"
    assert texts == [f"{text}; `trainwarden stop demo` ends it", text]


def _context(
    setup: Setup, journal: Journal, observer: FakeObserver, clock: FakeClock
) -> EngineContext:
    return EngineContext(
        setup=setup,
        journal=journal,
        observer=observer,
        clock=clock,
        tracker=BlindKin(),
        thread_factory=InlineThread,
    )


async def _recorded_end(journal: Journal, clock: FakeClock, running: asyncio.Task[None]) -> Event:
    """Returns the one end of a run, once it is recorded; ends the maintenance."""
    async with asyncio.timeout(DEADLINE_SECONDS):  # it is recorded by a thread
        while not _finished(journal):
            await clock.advance(RUNS_SECONDS)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    (found,) = (one for one in journal.newest_events(100) if one.kind == "run_finished")
    return found


def _finished(journal: Journal) -> list[str]:
    return sorted(one.run for one in journal.newest_events(100) if one.kind == "run_finished")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "its process does not end: it may export or upload"),
        ({"waits": "process 7 waits for 10.0.0.1:443"}, "process 7 waits for 10.0.0.1:443"),
        ({"stuck": True}, ""),
        ({"finished": True}, ""),
        ({"trainer_processes": 0}, ""),
        ({"last_step_made": False}, ""),
    ],
    ids=["exports", "uploads", "hangs", "has finished", "is dead", "makes steps"],
)
async def test_a_run_that_does_not_end_after_its_last_step_is_named_once_and_rings_nobody(
    tmp_path: Path, journal: Journal, clock: FakeClock, changes: dict[str, Any], text: str
) -> None:
    receiver = {"name": "ops", "kind": "json", "url": "http://127.0.0.1:1/"}
    known = {"trainer_processes": 1, "last_step_made": True, "step": 60, "total_steps": 60}
    observer = FakeObserver(runs={"demo": RunState(**{**known, **changes})})
    maintenance = Maintenance(
        _context(make_setup(tmp_path, notify={"receivers": [receiver]}), journal, observer, clock)
    )
    running = asyncio.create_task(maintenance.run())
    await clock.settle()
    for _ in range(round(LAST_STEP_SECONDS / RUNS_SECONDS) - 1):
        await clock.advance(RUNS_SECONDS)
    assert not _finished(journal)
    async with asyncio.timeout(DEADLINE_SECONDS):  # it is recorded by a thread
        while text and not _finished(journal):
            await clock.advance(RUNS_SECONDS)
    for _ in range(2 * round(LAST_STEP_SECONDS / RUNS_SECONDS)):
        await clock.advance(RUNS_SECONDS)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    found = [one for one in journal.newest_events(100) if one.kind == "run_finished"]
    assert len(found) == bool(text)
    for one in found:
        assert describe(one).startswith("the run has made its last step at step 60 of 60, and ")
        assert describe(one).endswith(text)
        call = Notification(1, "ops", "finished", one)
        message = build_message([call], instance="b", mode="act")
        assert (message.calls, message.urgent) == (False, False)
        assert message.title == "a run has made its last step and does not end"
