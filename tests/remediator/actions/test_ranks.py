"""A job of eight ranks is one target: restarted as a whole, whichever of them is in trouble."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock, InlineExecutor, InlineThread
from tests.remediator.fakes import BlindKin, FakeAction, FakeObserver
from tests.remediator.samples import GIB, NOW, make_alert, make_watched, make_worker
from tests.remediator.stage import going_on
from tests.waiting import until

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.matching import Matcher, WorkerKey
from trainwarden_exporter.processes.procfs import read_processes
from trainwarden_exporter.processes.selector import Selector
from trainwarden_exporter.run_config import RunConfig
from trainwarden_remediator.actions.base import RecordStep, first_health_problem
from trainwarden_remediator.actions.process import ProcessAction
from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.engine.control_loop import ControlLoop
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.observation.model import ExporterState

RANKS = tuple(f"rank-{number}" for number in range(8))
KEYS = tuple(WorkerKey("demo", rank) for rank in RANKS)
ILL = (1, 4, 6)
"""Ranks that alerts are about; none of them is the rank that names the target."""


class Job(FakeAction):
    """Restarts all ranks of a job; those in `failing` do not come up."""

    failing: frozenset[str] = frozenset()

    def _start(self, _: str, record_step: RecordStep) -> Mapping[str, Any]:
        record_step("start", command=["/bin/true"])
        for key in KEYS:
            up = key.worker not in self.failing
            self.observer.workers[key] = make_worker(
                processes=int(up), started_at=self.clock.now(), memory_bytes=GIB
            )
        return {"started_by": "trainwarden", "processes": [4343]}

    def health_problem(self, exporter: ExporterState, began: float) -> str:
        return first_health_problem(exporter, KEYS, began)


class JobScene:
    """An engine that watches such a job."""

    def __init__(self, folder: Path, journal: Journal, clock: FakeClock) -> None:
        self.journal, self.clock = journal, clock
        states = {f"{number:016x}": AlertState.ACTIVE for number in ILL}
        self.observer = FakeObserver(known=states)
        for number, key in enumerate(KEYS):
            size = 9 * GIB if number in ILL else GIB
            self.observer.workers[key] = make_worker(memory_bytes=size)
        self.job = Job(KEYS[0], self.observer, clock)
        target = {"run": "demo", "worker": RANKS[0], "additional_workers": RANKS[1:], "attempts": 3}
        content = {
            "mode": "act",
            "insecure": True,
            "journal": folder / "journal.db",
            "hold_file": folder / "hold",
            "targets": [{**target, "process": {"start": ["/bin/true"], "grace": 1}}],
        }
        self.engine = ControlLoop(
            EngineContext(
                setup=Setup(
                    Config.model_validate(content, context={"folder": folder}),
                    make_watched(*(f"demo/{rank}" for rank in RANKS)),
                ),
                journal=journal,
                observer=self.observer,
                clock=clock,
                tracker=BlindKin(),
                action_for=lambda *_: self.job,
                thread_factory=InlineThread,
            )
        )

    def hear(self, *numbers: int) -> None:
        self.journal.record_alerts(
            [
                make_alert(
                    fingerprint=f"{number:016x}", starts_at=NOW - 20, worker=f"rank-{number}"
                )
                for number in numbers
            ]
        )
        self.engine.wake()

    async def pass_time(self, seconds: float) -> None:
        end = self.clock.now() + seconds
        while (left := end - self.clock.now()) > 0:
            await self.clock.advance(min(60, left))
            self.hear(*ILL)

    def outcomes(self) -> list[str]:
        events = reversed(self.journal.newest_events(1000))
        return [event.facts["outcome"] for event in events if event.kind == "outcome"]


Begin = Callable[[], Any]


@pytest.fixture
def begin(tmp_path: Path, journal: Journal, clock: FakeClock) -> Begin:
    @asynccontextmanager
    async def begin() -> AsyncIterator[JobScene]:
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
        scene = JobScene(tmp_path, journal, clock)
        async with going_on(scene.engine.run()):
            await clock.settle()
            yield scene

    return begin


async def test_eight_ranks_and_alerts_for_three_are_one_restart_of_the_job(begin: Begin) -> None:
    async with begin() as scene:
        scene.hear(*ILL)
        await scene.pass_time(1800)
        assert len(scene.job.restarts) == 1
        assert scene.outcomes() == ["healed"]


async def test_an_alert_for_another_rank_meanwhile_is_about_the_same_job(begin: Begin) -> None:
    async with begin() as scene:
        scene.hear(ILL[0])
        await scene.clock.advance(3)
        scene.hear(*ILL[1:])
        await scene.pass_time(1800)
        assert len(scene.job.restarts) == 1
        actions = scene.journal.past_actions(0)
        assert [action.key for action in actions] == [KEYS[0]]


async def test_it_is_verified_on_every_rank_and_has_one_budget(begin: Begin) -> None:
    async with begin() as scene:
        scene.job.failing = frozenset({"rank-7"})
        missing = make_worker(processes=0, memory_bytes=0)
        scene.observer.workers[KEYS[7]] = missing
        scene.hear(*ILL)
        await scene.clock.advance(100)
        assert scene.outcomes() == ["not_healed"]
        (outcome,) = [e for e in scene.journal.newest_events(100) if e.kind == "outcome"]
        assert outcome.facts["seen"] == "rank-7: 0 of 1 processes run"
        # Alerts about any of them: no more actions than the attempts of the one target.
        for key in (KEYS[number] for number in ILL):
            scene.observer.workers[key] = make_worker()
        await scene.pass_time(2000)
        assert len(scene.job.restarts) <= 3


async def test_an_alert_that_names_no_rank_of_it_is_about_no_target(begin: Begin) -> None:
    async with begin() as scene:
        scene.journal.record_alerts([make_alert(starts_at=NOW - 20, worker="rank-8")])
        scene.engine.wake()
        await scene.pass_time(300)
        events = scene.journal.newest_events(100)
        assert "unknown_target" in {event.facts.get("reason") for event in events}


LAUNCHER = """
import pathlib, signal, subprocess, sys, time
mark, starts = sys.argv[1:3]
with open(starts, "a") as file:
    file.write("started\\n")
ranks = [
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", f"{mark}-rank-{n}."])
    for n in range(8)
]
def end(*_):
    for rank in ranks:
        rank.terminate()
    for rank in ranks:
        rank.wait()
    with open(starts, "a") as file:
        file.write("ended its ranks\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
signal.pause()
"""


def test_real_ranks_are_ended_by_their_launcher_and_started_as_one_job(tmp_path: Path) -> None:
    mark, starts = f"job-{time.monotonic_ns()}", tmp_path / "starts"
    # The launcher itself is the first of its workers, the ranks below it are the others.
    matches = {"launcher": f" {mark} "} | {rank: rf"{mark}-{rank}\." for rank in RANKS}
    workers = tuple(
        WorkerConfig(name=name, match=Selector.model_validate({"command": match}))
        for name, match in matches.items()
    )
    watched = ExporterConfig(runs=(RunConfig(name="demo", workers=workers),))
    command = [sys.executable, "-c", LAUNCHER, mark, str(starts)]
    content = {
        "insecure": True,
        "targets": [
            {
                "run": "demo",
                "worker": "launcher",
                "additional_workers": RANKS,
                "process": {"start": command, "grace": 20, "cwd": tmp_path},
            }
        ],
    }
    config = Config.model_validate(content, context={"folder": tmp_path})
    (target,) = config.targets
    setup = Setup(config, watched)
    assert target.process is not None
    action = ProcessAction(target, target.process, setup, BlindKin())
    matcher = Matcher(setup.selectors)

    def pids() -> dict[str, int]:
        trees = matcher.assign(read_processes())
        return {
            key.worker: one.pid
            for key, tree in trees.items()
            for one in tree.roots
            # The launcher that ended stays a zombie until this test waits for it, and is known.
            if one.state != "Z"
        }

    child = subprocess.Popen(command, cwd=tmp_path)
    try:
        until(lambda: len(pids()) == 9)
        before = pids()
        facts = action.perform("m", lambda *_, **__: None, intended=action.find_instances())
        until(lambda: len(pids()) == 9)
        after = pids()
        assert facts["killed"] == []
        assert not set(before.values()) & set(after.values())
        assert starts.read_text().split("\n")[:3] == ["started", "ended its ranks", "started"]
        assert starts.read_text().count("started") == 2
    finally:
        for pid in action.find_instances():
            subprocess.run(["kill", "-KILL", str(pid[0])], check=False, stderr=subprocess.DEVNULL)
        child.wait(60)
        until(lambda: not action.reap_children())
