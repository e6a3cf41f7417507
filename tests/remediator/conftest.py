"""What the remediator's tests share: deliveries, a clock, a world made up, a box almost real."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from trainwarden_exporter.collectors.gpu import GpuConfig
from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.gpu.view import GpuView, look_at_gpus
from trainwarden_exporter.lane import Lane
from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.matching import Matcher, Selector, Tree, WorkerKey
from trainwarden_exporter.processes.procfs import (
    Identity,
    read_environment,
    read_process,
    start_timestamp,
)
from trainwarden_exporter.runs import RunConfig
from trainwarden_remediator.actions.base import Action, Announce, Saving, Standing, never
from trainwarden_remediator.actions.healing import illness
from trainwarden_remediator.actions.process import MARK, ProcessAction
from trainwarden_remediator.alertmanager import AlertState, Silence
from trainwarden_remediator.alerts import Alert
from trainwarden_remediator.config import Config, Setup
from trainwarden_remediator.ending import end
from trainwarden_remediator.engine import Engine
from trainwarden_remediator.exceptions import UnknownError
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.journalfile import connect
from trainwarden_remediator.kin import Kin, KinMemory
from trainwarden_remediator.means.process import ProcessTarget
from trainwarden_remediator.records import Event, read_events
from trainwarden_remediator.sight import DiskSight, RunSight, ServerSight, Sight, WorkerSight
from trainwarden_remediator.subjects import Subject
from trainwarden_remediator.targets import Target
from trainwarden_remediator.world import Alerts

NOW = 1_800_000_000.0
TOKEN = "a-token-of-some-length"
FINGERPRINT = "0123456789abcdef"
ROLLOUT = WorkerKey("demo", "rollout-0")
GIB = 1024.0**3


def sent_alert(**changes: Any) -> dict[str, Any]:
    """An alert as Alertmanager 0.25 sends it; `labels` are added to those it has."""
    labels = {
        "alertname": "TrainingWorkerMemoryOverLimit",
        "instance": "127.0.0.1:10977",
        "job": "trainwarden-exporter",
        "remediation": "restart_leaking_worker",
        "role": "rollout",
        "run": "demo",
        "severity": "critical",
        "worker": "rollout-0",
    }
    return {
        "status": "firing",
        "annotations": {"summary": "A worker holds more memory than its limit."},
        "startsAt": "2027-01-15T08:00:00.123456789Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://localhost:9090/graph?g0.expr=x&g0.tab=1",
        "fingerprint": FINGERPRINT,
        **changes,
        "labels": {**labels, **changes.get("labels", {})},
    }


def delivery(*alerts: dict[str, Any], **changes: Any) -> bytes:
    """The body of a webhook, with every key that Alertmanager 0.25 writes."""
    common = {"run": "demo", "worker": "rollout-0"}
    content = {
        "receiver": "trainwarden\\-remediator",
        "status": "firing",
        "alerts": list(alerts),
        "groupLabels": common,
        "commonLabels": common,
        "commonAnnotations": {},
        "externalURL": "http://localhost:9093",
        "version": "4",
        "groupKey": '{}/{remediation!=""}:{run="demo", worker="rollout-0"}',
        "truncatedAlerts": 0,
    }
    return json.dumps({**content, **changes}).encode()


def make_alert(
    *, fingerprint: str = FINGERPRINT, starts_at: float = NOW, firing: bool = True, **labels: str
) -> Alert:
    """An alert as parsed; labels given as "" are left out."""
    every = {
        "alertname": "TrainingWorkerMemoryOverLimit",
        "run": "demo",
        "worker": "rollout-0",
        "remediation": "restart_leaking_worker",
        **labels,
    }
    return Alert(fingerprint, starts_at, firing, {k: v for k, v in every.items() if v})


def make_worker(**changes: Any) -> WorkerSight:
    """A worker over its memory limit that started long ago."""
    leaking = WorkerSight(
        processes=1,
        expected=1,
        resident_bytes=9 * GIB,
        finished=False,
        started_at=NOW - 3600,
        memory_limit_bytes=8 * GIB,
        age_limit_seconds=None,
    )
    return replace(leaking, **changes)


def make_config(folder: Path, *workers: str, **changes: Any) -> Config:
    """A configuration that acts on `workers` ("run/worker"; demo/rollout-0 when none is given)."""
    budget = ("cooldown", "attempts", "attempts_window")
    each: dict[str, Any] = {key: changes.pop(key) for key in budget if key in changes}
    targets: list[dict[str, Any]] = []
    for name in workers or ("demo/rollout-0",):
        run, _, worker = name.partition("/")
        process = {"start": ["/bin/true"], "grace": 1}
        targets.append({"run": run, "worker": worker, "process": process})
    content = {
        "mode": "act",
        "insecure": True,
        "journal": folder / "journal.db",
        "hold_file": folder / "hold",
        "targets": targets,
        **changes,
    }
    config = Config.model_validate(content, context={"folder": folder})
    # Not validated: what is decided must be sound for budgets that no file may hold, too.
    copies = tuple(target.model_copy(update=each) for target in config.targets)
    return config.model_copy(update={"targets": copies})


def make_watched(*workers: str, finishes: Collection[str] = ()) -> ExporterConfig:
    """An exporter.yml with these workers ("run/worker"); the role of each is its name."""
    runs: dict[str, list[WorkerConfig]] = {}
    for name in workers:
        run, _, worker = name.partition("/")
        match = Selector.model_validate({"command": f"nothing-like-{worker}"})
        ends = worker in finishes
        one = WorkerConfig(name=worker, role=worker, match=match, finishes=ends)
        runs.setdefault(run, []).append(one)
    return ExporterConfig(
        runs=tuple(RunConfig(name=run, workers=tuple(found)) for run, found in runs.items())
    )


def make_setup(folder: Path, *workers: str, **changes: Any) -> Setup:
    """As `make_config`, with the exporter's file to it."""
    return Setup(make_config(folder, *workers, **changes), make_watched(*workers))


T = TypeVar("T")


class FakeClock:
    """Time that stands still until somebody advances it."""

    def __init__(self, now: float = NOW) -> None:
        self._now = now
        self._set = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now - self._set

    def set_forward(self, seconds: float) -> None:
        """Set the time of day, and nothing else."""
        self._now += seconds
        self._set += seconds
        self._sleepers = [(at + seconds, *rest) for at, *rest in self._sleepers]  # type: ignore[misc]

    def __call__(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken

    async def settle(self) -> None:
        """Let everything go on that does not wait for time."""
        ready = vars(asyncio.get_running_loop())["_ready"]
        while True:
            await asyncio.sleep(0)
            if not ready:
                return

    async def advance(self, seconds: float) -> None:
        """Wake everybody whose time comes within `seconds`, in order."""
        end = self._now + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                self._now = max(self._now, at)
                woken.set_result(None)
                await self.settle()
        self._now = end

    def pass_by(self, seconds: float) -> None:
        """Let time pass without waking anybody: something took that long."""
        self._now += seconds


class InlineExecutor(ThreadPoolExecutor):
    """Runs what is meant for a thread at once, so that a test decides what happens when."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - it is the caller's to judge
            future.set_exception(error)
        return future


class InlineLane(Lane):
    """A lane without a thread of its own: what it is to run, it runs at once."""

    def __init__(self, name: str) -> None:
        del name

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(function())
        except Exception as error:  # noqa: BLE001 - it is the caller's to judge
            future.set_exception(error)
        return future

    def close(self) -> None:
        pass


@dataclass
class FakeEyes:
    """A world that is as the test says; an UnknownError in it is raised."""

    workers: dict[WorkerKey, WorkerSight] = field(default_factory=dict)
    known: dict[str, AlertState] = field(default_factory=dict)
    available: float = 20 * GIB
    floor: float = 2 * GIB
    blind: UnknownError | None = None
    deaf: UnknownError | None = None
    looks: int = 0
    servers: dict[str, tuple[ServerSight, ...]] = field(default_factory=dict)
    runs: dict[str, RunSight] = field(default_factory=dict)
    disks: tuple[DiskSight, ...] = ()
    silences: tuple[Silence, ...] = ()

    async def look(self) -> Sight:
        self.looks += 1
        if self.blind:
            raise self.blind
        return Sight(
            dict(self.workers),
            self.available,
            self.floor,
            servers=dict(self.servers),
            runs=dict(self.runs),
            disks=self.disks,
        )

    async def alerts(self) -> Alerts:
        if self.deaf:
            raise self.deaf
        return Alerts(dict(self.known), self.silences)


class NoRecords:
    """Keeps nothing."""

    def remember(self, boot: str, kin: Mapping[WorkerKey, Kin]) -> None:
        pass

    def remembered(self, boot: str) -> Mapping[WorkerKey, Kin]:
        return {}


class BlindKin(KinMemory):
    """Never looks at the processes of the box."""

    def __init__(self) -> None:
        super().__init__(NoRecords())

    def look(self, matcher: Matcher, keys: Collection[WorkerKey]) -> None:
        pass


def numbered(mark: str) -> int:
    """The number of the action that the mark is of."""
    _, _, number, _ = mark.split("/")
    return int(number)


@dataclass(eq=False)
class FakeAction(Action):
    """Restarts a worker of `eyes`; `heal` says what becomes of it, `error` is raised instead."""

    key: WorkerKey
    eyes: FakeEyes
    clock: FakeClock
    heal: Mapping[str, Any] = field(default_factory=lambda: {"resident_bytes": GIB, "processes": 1})
    error: Exception | None = None
    stands: Standing = Standing.UNTOUCHED
    patience: float = 1.0
    restarts: list[int] = field(default_factory=list)
    finishes: list[int] = field(default_factory=list)
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None

    kind = "restart"

    @property
    def grace(self) -> float:
        return self.patience

    def processes(self) -> Collection[Subject]:
        return [Identity(4242, 17)]

    def perform(
        self,
        mark: str,
        announce: Announce,
        meant: Collection[Subject] | None = None,
        saving: Saving = never,
    ) -> Mapping[str, Any]:
        del meant
        self.restarts.append(numbered(mark))
        announce("stop", processes=[4242])
        self.before()
        if self.error:
            raise self.error
        return {"killed": [], **self._start(mark, announce)}

    def finish(self, mark: str, announce: Announce) -> Mapping[str, Any]:
        self.finishes.append(numbered(mark))
        return self._start(mark, announce)

    def standing(self, mark: str, before: Collection[Subject]) -> Standing:
        return self.stands

    def illness(self, sight: Sight, began: float) -> str:
        return illness(sight, self.key, began)

    def _start(self, _: str, announce: Announce) -> Mapping[str, Any]:
        announce("start", command=["/bin/true"])
        worker = self.eyes.workers[self.key]
        self.eyes.workers[self.key] = replace(worker, started_at=self.clock.now(), **self.heal)
        self.after()
        return {"started_by": "trainwarden", "processes": [4343]}


TRAINER = WorkerKey("demo", "trainer")
OTHER = WorkerKey("second", "trainer")
WORKERS = ("demo/rollout-0", "demo/trainer", "second/trainer")
LATER = "1" * 16


class Scene:
    """An engine, and the world that it is in."""

    def __init__(self, folder: Path, journal: Journal, clock: FakeClock, **changes: Any) -> None:
        self.folder = folder
        self.journal = journal
        self.clock = clock
        self.eyes = FakeEyes(known={FINGERPRINT: AlertState.ACTIVE, LATER: AlertState.ACTIVE})
        self.actions: dict[WorkerKey, FakeAction] = {}
        for key in (ROLLOUT, TRAINER, OTHER):
            self.eyes.workers[key] = make_worker()
            self.actions[key] = FakeAction(key, self.eyes, clock)
        self.setup = self.configured(**changes)
        self.engine = Engine(
            self.setup,
            journal,
            self.eyes,
            clock=clock,
            action_for=lambda target, *_: self.actions[target.key],
            lane=InlineLane,
            kin=BlindKin(),
        )

    @property
    def action(self) -> FakeAction:
        return self.actions[ROLLOUT]

    def configured(self, **changes: Any) -> Setup:
        return make_setup(self.folder, *WORKERS, **changes)

    def spoil(self, journal: Any) -> None:
        """Let the engine write into another journal."""
        acting = self.engine._acting
        self.engine._journal = acting._journal = acting.carrier._journal = journal

    def hear(self, **labels: Any) -> None:
        self.journal.hear([make_alert(**{"starts_at": self.clock.now() - 20, **labels})])
        self.engine.wake()

    def told(self) -> list[str]:
        """The journal, oldest first: reasons of decisions, results, outcomes, kinds of the rest."""
        return [
            event.facts.get("reason")
            or event.facts.get("result")
            or event.facts.get("outcome")
            or event.kind
            for event in reversed(self.journal.newest_events(1000))
        ]

    def done(self) -> list[str]:
        """As `told`, without what was decided."""
        decided = {
            e.facts["reason"] for e in self.journal.newest_events(1000) if "reason" in e.facts
        }
        return [word for word in self.told() if word not in decided - {"resolved"}]

    async def pass_time(self, seconds: float, **hearing: Any) -> None:
        """Advance, with Alertmanager repeating the alert each minute as the shipped rules do."""
        end = self.clock.now() + seconds
        starts = NOW - 20
        while (left := end - self.clock.now()) > 0:
            await self.clock.advance(min(60, left))
            self.journal.hear([make_alert(starts_at=starts, **hearing)])


@asynccontextmanager
async def going_on(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Meanwhile `work` goes on, which should never come to its end."""
    running = asyncio.create_task(work)
    try:
        yield
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


Stage = Callable[..., Any]


@pytest.fixture
def stage(tmp_path: Path, journal: Journal, clock: FakeClock) -> Stage:
    @asynccontextmanager
    async def begin(*, before: Callable[[Scene], None] | None = None, **changes: Any) -> Any:
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
        scene = Scene(tmp_path, journal, clock, **changes)
        if before:
            before(scene)
        async with going_on(scene.engine.run()):
            await clock.settle()
            yield scene

    return begin


WORKER = "import time; print('up', flush=True); time.sleep(600)"


class Box:
    """A real worker, and over HTTP an exporter that shows it and an Alertmanager that knows of it.

    As the exporter shows it, a worker leaks unless the remediator has started it. All files are in
    `folder`; what is under way there is ended by `close`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"box-{uuid.uuid4().hex}"
        self.known = {FINGERPRINT: "active"}
        self.blind = False
        self.command = [sys.executable, "-c", WORKER, self.mark]
        self._children: list[subprocess.Popen[str]] = []
        self._matcher = Matcher({ROLLOUT: Selector.model_validate({"command": self.mark})})
        self._turn = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.config_file = folder / "remediator.yml"
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN)
        worker = {"name": "rollout-0", "role": "rollout", "match": {"command": self.mark}}
        runs = [{"name": "demo", "workers": [{**worker, "memory_limit": "8GiB"}]}]
        (folder / "exporter.yml").write_text(yaml.safe_dump({"runs": runs}))
        self.configure()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def configure(self, **changes: Any) -> None:
        """Write remediator.yml."""
        process = {"start": self.command, "grace": "2s", "log": "worker.log"}
        verify = {"within": "20s", "steady": "0s"}
        content = {
            "mode": "act",
            "token_file": "token",
            "journal": "state/journal.db",
            "hold_file": "state/hold",
            "exporter": {"url": self.url, "config": "exporter.yml"},
            "alertmanager": {"url": self.url},
            "targets": [{"run": "demo", "worker": "rollout-0", "process": process}],
            "playbooks": {
                "restart_leaking_worker": {"trouble": "over_memory_limit", "verify": verify}
            },
            **changes,
        }
        self.config_file.write_text(yaml.safe_dump(content))

    def start_worker(self) -> subprocess.Popen[str]:
        child = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        self._children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child

    def workers(self) -> list[Identity]:
        """What runs of the worker now."""
        with self._turn:
            roots = self._matcher.find()[ROLLOUT].roots
        return [root.identity for root in roots if root.alive]

    def alert(self, *, ago: float = 0, **labels: str) -> dict[str, Any]:
        """An alert that began so many seconds ago."""
        starts = datetime.fromtimestamp(time.time() - ago, UTC)
        return sent_alert(startsAt=f"{starts:%Y-%m-%dT%H:%M:%S.%f}789Z", labels=labels)

    def events(self) -> list[Event]:
        """The journal, oldest first."""
        connection = connect(self.folder / "state" / "journal.db", mode="ro")
        try:
            return list(read_events(connection))
        finally:
            connection.close()

    def told(self) -> list[str]:
        """What happened, oldest first, without decisions."""
        return [
            e.facts.get("result") or e.facts.get("outcome") or e.kind
            for e in self.events()
            if e.kind != "decision"
        ]

    def close(self) -> None:
        for child in self._children:
            child.kill()
            child.wait(60)
            if child.stdout:
                child.stdout.close()
        for identity in self.workers():
            os.kill(identity.pid, signal.SIGKILL)
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        box = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = box._page() if self.path == "/metrics" else box._alerts(self.path)
                self.send_response(503 if box.blind else 200)
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def _page(self) -> str:
        lines = [f'trainwarden_collector_success{{collector="{c}"}} 1' for c in ("host", "workers")]
        lines += ["trainwarden_memory_effective_available_bytes 2e10"]
        lines += ["trainwarden_memory_available_floor_bytes 2e9"]
        roots = self.workers()
        marked = [MARK in (read_environment(identity.pid) or {}) for identity in roots]
        values = {
            "processes": len(roots),
            "expected_processes": 1,
            "resident_bytes": 0 if not roots else GIB if all(marked) else 9 * GIB,
            "memory_limit_bytes": 8 * GIB,
            "finished": 0,
        }
        if roots:
            values["start_timestamp_seconds"] = min(start_timestamp(root) for root in roots)
        labels = 'run="demo",worker="rollout-0",role="rollout"'
        lines += [f"trainwarden_worker_{name}{{{labels}}} {n}" for name, n in values.items()]
        return "".join(f"{line}\n" for line in lines)

    def _alerts(self, path: str) -> str:
        if path.endswith("/silences"):
            return "[]"
        return json.dumps(
            [
                {"fingerprint": fingerprint, "status": {"state": state}}
                for fingerprint, state in self.known.items()
            ]
        )


class NightBox(Box):
    """A box on which an inference server is dead, and the trainer waits for it.

    As the exporter shows it, whatever runs of the server serves, and a trainer makes steps once the
    remediator has started it.
    """

    def __init__(self, folder: Path) -> None:
        self.trainer_mark = f"box-{uuid.uuid4().hex}"
        self.trainer_command = [sys.executable, "-c", WORKER, self.trainer_mark]
        self._trainers = Matcher({TRAINER: Selector.model_validate({"command": self.trainer_mark})})
        super().__init__(folder)
        workers = [
            {"name": name, "role": role, "match": {"command": mark}}
            for name, role, mark in (
                ("rollout-0", "inference", self.mark),
                ("trainer", "trainer", self.trainer_mark),
            )
        ]
        runs = [{"name": "demo", "workers": workers}]
        (folder / "exporter.yml").write_text(yaml.safe_dump({"runs": runs}))

    def configure(self, **changes: Any) -> None:
        targets = [
            {
                "run": "demo",
                "worker": name,
                "cooldown": 0,
                "attempts": 9,
                "process": {"start": command, "grace": "2s"},
            }
            for name, command in (("rollout-0", self.command), ("trainer", self.trainer_command))
        ]
        rungs = [
            {"verify": {"serves": True, "within": "20s", "steady": "0s"}},
            {
                "target": "trainer",
                "when": "no_progress",
                "after": "1s",
                "verify": {"progress": True, "within": "20s", "steady": "0s"},
            },
        ]
        playbooks = {"restart_inference": {"rungs": rungs}}
        super().configure(**{"targets": targets, "playbooks": playbooks, **changes})

    def start_trainer(self) -> subprocess.Popen[str]:
        child = subprocess.Popen(self.trainer_command, stdout=subprocess.PIPE, text=True)
        self._children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child

    def trainers(self) -> list[Identity]:
        with self._turn:
            roots = self._trainers.find()[TRAINER].roots
        return [root.identity for root in roots if root.alive]

    def alert(self, *, ago: float = 0, **labels: str) -> dict[str, Any]:
        return super().alert(ago=ago, remediation="restart_inference", **labels)

    def close(self) -> None:
        for identity in self.trainers():
            os.kill(identity.pid, signal.SIGKILL)
        super().close()

    def _page(self) -> str:
        now, trainers = time.time(), self.trainers()
        serves = bool(self.workers())
        which = 'run="demo",server="s",engine="sglang"'
        resumed = [one for one in trainers if MARK in (read_environment(one.pid) or {})]
        step_at = start_timestamp(resumed[0]) + 0.2 if resumed else now - 3600
        shown = {
            f'inference_info{{{which},worker="rollout-0",role="inference"}}': 1,
            f"inference_up{{{which}}}": int(serves),
            f'inference_reason{{{which},reason="refused"}}': int(not serves),
            f"inference_deep_probe_success{{{which}}}": int(serves),
            f"inference_deep_probe_timestamp_seconds{{{which}}}": now,
            'training_step{run="demo"}': 1871 if resumed else 1874,
            'training_last_step_timestamp_seconds{run="demo"}': step_at,
            'training_progress_timestamp_seconds{run="demo"}': step_at,
            'training_stall_limit_seconds{run="demo"}': 1,
            'training_resume_step{run="demo"}': 1870,
            'training_first_step_after_resume{run="demo"}': 1871,
            'checkpoint_complete{run="demo",checkpoint="default"}': 1,
            'checkpoint_step{run="demo",checkpoint="default"}': 1870,
            'checkpoint_recovery_matches{run="demo",checkpoint="default"}': 1,
        }
        trainer = 'run="demo",worker="trainer",role="trainer"'
        shown |= {
            f"worker_processes{{{trainer}}}": len(trainers),
            f"worker_expected_processes{{{trainer}}}": 1,
            f"worker_resident_bytes{{{trainer}}}": GIB,
        }
        if trainers:
            start = min(map(start_timestamp, trainers))
            shown[f"worker_start_timestamp_seconds{{{trainer}}}"] = start
        return super()._page() + "".join(f"trainwarden_{name} {n}\n" for name, n in shown.items())


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something that processes of their own bring about."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.01)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path)
    yield box
    box.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def journal(tmp_path: Path, clock: FakeClock) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.db", clock=clock)
    yield journal
    journal.close()


# real processes

SLEEP = "import time; print('up', flush=True); time.sleep(30)"
TERM_EXITS = f"import signal, sys; signal.signal(15, lambda *_: sys.exit(3)); {SLEEP}"
TERM_IGNORED = f"import signal; signal.signal(15, signal.SIG_IGN); {SLEEP}"
PARENT = """
import subprocess, sys, time
command = [sys.executable, "-c", sys.argv[2]]
child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=sys.argv[3] == "y")
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(30)
"""


def stop(tree: Tree, *, grace: float) -> tuple[int, ...]:
    roots, members = ([process.identity for process in part] for part in (tree.roots, tree.members))
    return end(roots, members, grace=grace)


class Yard:
    """Starts processes that carry a mark of this test in their command line, and ends them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"yard-{uuid.uuid4().hex}"
        self._children: list[subprocess.Popen[str]] = []
        self._strangers: list[int] = []
        self.kin = KinMemory(NoRecords())
        self.action = self.acting()

    def run(self, program: str, *arguments: str, mark: str | None = None) -> subprocess.Popen[str]:
        """A python that runs `program`, once it has printed its first line."""
        return self.run_command(sys.executable, "-c", program, mark or self.mark, *arguments)[0]

    def run_command(self, *command: str | Path) -> tuple[subprocess.Popen[str], str]:
        """A process, and the first line it prints."""
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._children.append(child)
        assert child.stdout is not None
        return child, child.stdout.readline()

    def run_tree(
        self, below: str = SLEEP, *, own_session: bool = False
    ) -> tuple[subprocess.Popen[str], int]:
        """A parent, and the pid of the child it has started."""
        session = "y" if own_session else "n"
        parent, line = self.run_command(*(sys.executable, "-c", PARENT, self.mark, below, session))
        self.care_for(int(line))
        return parent, int(line)

    def care_for(self, pid: int) -> None:
        """End a process that is no child of the test, too."""
        self._strangers.append(os.pidfd_open(pid))

    def target(self, **process: Any) -> Target:
        command = [sys.executable, "-c", SLEEP, self.mark]
        content = {"start": command, "grace": 5, "cwd": self.folder, **process}
        target = {"run": "demo", "worker": "rollout-0", "process": content}
        return Target.model_validate(target, context={"folder": self.folder})

    def process(self, target: Target) -> ProcessTarget:
        assert target.process is not None
        return target.process

    def acting(
        self,
        *,
        also: Mapping[WorkerKey, Selector] | None = None,
        look: Callable[[ExporterConfig], GpuView] = look_at_gpus,
        save_patience: float = 600,
        **changes: Any,
    ) -> Any:
        selectors = {ROLLOUT: Selector.model_validate({"command": self.mark}), **(also or {})}
        workers = [WorkerConfig(name=key.worker, match=match) for key, match in selectors.items()]
        run = RunConfig(name="demo", workers=tuple(workers))
        gpu = GpuConfig(device_root=self.folder / "dev")
        watched = ExporterConfig(gpu=gpu, runs=(run,))
        target = self.target(**changes).model_copy(update={"save_patience": save_patience})
        setup = Setup(Config(insecure=True, targets=(target,)), watched)
        self.matcher = Matcher(selectors)
        self.action = ProcessAction(target, self.process(target), setup, self.kin, look=look)
        return self.action

    def look(self) -> None:
        """Let it be remembered what stands below which root."""
        self.kin.look(self.matcher, [ROLLOUT])

    def tree(self) -> Tree:
        tree: Tree = self.action._now().tree
        return tree

    def close(self) -> None:
        for child in (*self._children, *self.action._children):
            child.kill()
            child.wait(60)
            if child.stdout:
                child.stdout.close()
        for pidfd in self._strangers:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)


def alive(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and process.alive


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path)
    yield yard
    yard.close()


class Steps(list[tuple[str, dict[str, Any]]]):
    """What was announced."""

    def __call__(self, step: str, **facts: Any) -> None:
        self.append((step, facts))
