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
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from trainwarden_exporter.lane import Lane
from trainwarden_exporter.processes.matching import Matcher, Selector, Tree, WorkerKey
from trainwarden_exporter.processes.procfs import (
    Identity,
    read_environment,
    read_process,
    start_timestamp,
)
from trainwarden_remediator.actions.base import Action, Announce, Standing
from trainwarden_remediator.actions.process import MARK, ProcessAction, illness
from trainwarden_remediator.alerts import Alert
from trainwarden_remediator.config import Config, Target
from trainwarden_remediator.ending import end
from trainwarden_remediator.exceptions import UnknownError
from trainwarden_remediator.journal import Event, Journal, connect, read_events
from trainwarden_remediator.world import AlertState, Sight, WorkerSight

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


T = TypeVar("T")


class FakeClock:
    """Time that stands still until somebody advances it."""

    def __init__(self, now: float = NOW) -> None:
        self._now = now
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

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

    async def look(self) -> Sight:
        self.looks += 1
        if self.blind:
            raise self.blind
        return Sight(dict(self.workers), self.available, self.floor)

    async def alerts(self) -> Mapping[str, AlertState]:
        if self.deaf:
            raise self.deaf
        return dict(self.known)


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

    kind = "restart"

    @property
    def grace(self) -> float:
        return self.patience

    def processes(self) -> Collection[Identity]:
        return [Identity(4242, 17)]

    def perform(
        self, action: int, announce: Announce, meant: Collection[Identity] | None = None
    ) -> Mapping[str, Any]:
        del meant
        self.restarts.append(action)
        announce("stop", processes=[4242])
        self.before()
        if self.error:
            raise self.error
        return {"killed": [], **self._start(action, announce)}

    def finish(self, action: int, announce: Announce) -> Mapping[str, Any]:
        self.finishes.append(action)
        return self._start(action, announce)

    def standing(self, action: int, before: Collection[Identity]) -> Standing:
        return self.stands

    def illness(self, sight: Sight, began: float) -> str:
        return illness(sight, self.key, began)

    def _start(self, _: int, announce: Announce) -> Mapping[str, Any]:
        announce("start", command=["/bin/true"])
        worker = self.eyes.workers[self.key]
        self.eyes.workers[self.key] = replace(worker, started_at=self.clock.now(), **self.heal)
        return {"started_by": "trainwarden", "processes": [4343]}


WORKER = "import time; print('up', flush=True); time.sleep(60)"


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
        connection = connect(self.folder / "state" / "journal.db", readonly=True)
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
            child.wait(10)
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
                page = box._page() if self.path == "/metrics" else box._alerts()
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

    def _alerts(self) -> str:
        return json.dumps(
            [
                {"fingerprint": fingerprint, "status": {"state": state}}
                for fingerprint, state in self.known.items()
            ]
        )


def until(true: Callable[[], bool], seconds: float = 20) -> None:
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

    def acting(self, *, also: Mapping[WorkerKey, Selector] | None = None, **changes: Any) -> Any:
        selectors = {ROLLOUT: Selector.model_validate({"command": self.mark}), **(also or {})}
        self.action = ProcessAction(self.target(**changes), selectors)
        return self.action

    def tree(self) -> Tree:
        tree: Tree = self.action._tree()
        return tree

    def close(self) -> None:
        for child in (*self._children, *self.action._children):
            child.kill()
            child.wait(10)
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
