"""1,400 peers that never read, a gzip bomb every 30 ms and a decoy, while a worker leaks.

The attackers share the processors with the programs, so they run at the lowest priority: the test
measures what the programs do with the connections, and not how the scheduler divides the time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle, product
from pathlib import Path

import pytest
import yaml
from tests.hostile.accounts import STRANGER, started
from tests.hostile.bombs import gzip_bomb
from tests.hostile.programs import EXPORTER, PATIENCE, REMEDIATOR, Program
from tests.remediator.live_host import Box
from tests.remediator.samples import TOKEN, delivery
from tests.waiting import until

ATTACKERS = 1400
FLOOD_SECONDS = 60.0
BOMB_INTERVAL = 0.03
SCRAPE_INTERVAL, SCRAPE_DEADLINE = 5.0, 4.0
"""Of the shipped prometheus.yml."""
HEALTH_INTERVAL, HEALTH_DEADLINE = 1.0, 1.0
PROJECT = Path(__file__).parents[2]
# Leaks only when it is started for the first time.
WORKER = """
import pathlib, sys, time
flag = pathlib.Path(sys.argv[2])
if not flag.exists():
    flag.touch()
    leak = b"x" * (160 << 20)
print("up", flush=True)
time.sleep(600)
"""


@dataclass
class Figures:
    """How long each request took, in seconds; infinite for a lost one."""

    seconds: list[float] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return self.seconds.count(float("inf"))

    @property
    def longest(self) -> float:
        return max(self.seconds)


def request(port: int, path: str, deadline: float) -> float:
    began = time.monotonic()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=deadline) as answer:
            answer.read()
    except OSError:
        return float("inf")
    took = time.monotonic() - began
    return took if took <= deadline else float("inf")


@contextmanager
def repeatedly(interval: float, act: Callable[[], None]) -> Iterator[None]:
    """Calls `act` in a thread of its own, once in each interval, while inside."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(interval):
            act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def flood(*ports: int) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.hostile.flood", str(ATTACKERS), *map(str, ports)]
    attackers = subprocess.Popen(command, cwd=PROJECT)
    try:
        yield
    finally:
        attackers.kill()
        attackers.wait(PATIENCE)


def deliver(port: int, body: bytes) -> None:
    """Sends the webhook as Alertmanager does, again after each failure."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}

    def accepted() -> bool:
        url = f"http://127.0.0.1:{port}/webhook"
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, body, headers),
                timeout=10,
            ) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    until(accepted)


@dataclass
class Target:
    """A program under attack, its figures before, and the requests of its clients."""

    program: Program
    memory: int
    descriptors: int
    cpu_seconds: float
    scrapes: Figures = field(default_factory=Figures)
    healths: Figures = field(default_factory=Figures)

    def scrape(self) -> None:
        port = self.program.address[1]
        self.scrapes.seconds.append(request(port, "/metrics", SCRAPE_DEADLINE))

    def check(self) -> None:
        port = self.program.address[1]
        self.healths.seconds.append(request(port, "/-/healthy", PATIENCE))

    def is_back(self) -> bool:
        """Whether memory and descriptors are as before."""
        return (
            self.program.memory() <= 1.2 * self.memory
            and self.program.descriptors <= self.descriptors + 10
        )

    def __str__(self) -> str:
        return (
            f"{self.program.name}: {len(self.scrapes.seconds)} scrapes, {self.scrapes.lost} lost, "
            f"longest {self.scrapes.longest:.2f} s; {len(self.healths.seconds)} health checks, "
            f"longest {self.healths.longest:.2f} s; "
            f"{self.program.cpu_seconds() - self.cpu_seconds:.1f} s of CPU time; "
            f"memory {self.memory >> 20} MiB before, "
            f"{self.program.memory() >> 20} after, {self.program.memory('VmHWM') >> 20} at most; "
            f"{len(self.program.log)} lines logged"
        )


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """A worker that leaks, and the configuration of both programs."""
    box = Box(tmp_path)
    box.command = [sys.executable, "-c", WORKER, box.mark, str(tmp_path / "flag")]
    match = {"command": box.mark, "user": str(os.geteuid())}
    worker = {"name": "rollout-0", "role": "rollout", "match": match, "memory_limit": "100MiB"}
    runs = [{"name": "demo", "workers": [worker]}]
    (tmp_path / "exporter.yml").write_text(yaml.safe_dump({"runs": runs}))
    yield box
    box.close()


@pytest.fixture
def targets(box: Box) -> Iterator[list[Target]]:
    with ExitStack() as started_programs:
        targets: list[Target] = []
        for name in (EXPORTER, REMEDIATOR):
            if targets:
                url = f"http://127.0.0.1:{targets[0].program.address[1]}"
                box.configure(exporter={"url": url, "config": "exporter.yml"})
            program = Program(name, box.folder)
            started_programs.callback(program.close)
            for _ in range(20):
                assert program.ask("GET", "/metrics").status == 200
            targets.append(
                Target(program, program.memory(), program.descriptors, program.cpu_seconds())
            )
        yield targets


@contextmanager
def bombs(targets: Sequence[Target]) -> Iterator[None]:
    """Sends one bomb in each interval, to the programs and several paths in turn."""
    bomb = gzip_bomb(4 << 30)
    turns = cycle(product(targets, ("/metrics", "/webhook", "/nowhere")))

    def throw() -> None:
        target, path = next(turns)
        token = f"Bearer {TOKEN}"
        with suppress(OSError):
            target.program.ask("POST", path, bomb, Content_Encoding="gzip", Authorization=token)

    with repeatedly(BOMB_INTERVAL, throw):
        yield


@contextmanager
def decoy(box: Box) -> Iterator[None]:
    """Another account's process with the command line of the worker."""
    if os.geteuid() != 0:
        yield
        return
    command = [sys.executable, "-c", "while :; do sleep 1; done", box.mark]
    with started(command, STRANGER, program="/bin/sh") as process:
        yield
        assert process.poll() is None


def test_no_scrape_is_lost_and_the_worker_is_healed(
    box: Box, targets: list[Target], capsys: pytest.CaptureFixture[str]
) -> None:
    leaking = box.start_worker()
    with ExitStack() as attack:
        for target in targets:
            attack.enter_context(repeatedly(SCRAPE_INTERVAL, target.scrape))
            attack.enter_context(repeatedly(HEALTH_INTERVAL, target.check))
        attack.enter_context(decoy(box))
        attack.enter_context(bombs(targets))
        ports = [target.program.address[1] for target in targets]
        attack.enter_context(flood(*ports))
        began = time.monotonic()
        deliver(ports[1], delivery(box.alert()))
        until(lambda: "healed" in box.journaled(), 600)
        healed_after = time.monotonic() - began
        until(lambda: time.monotonic() - began > FLOOD_SECONDS, 2 * FLOOD_SECONDS)
    assert leaking.wait(PATIENCE) is not None
    with suppress(AssertionError):
        until(lambda: all(target.is_back() for target in targets), 30)
    with capsys.disabled():
        print(f"\nhealed after {healed_after:.1f} s", *targets, sep="\n")  # noqa: T201
    for target in targets:
        assert target.scrapes.lost == 0
        assert target.healths.longest < HEALTH_DEADLINE
        assert target.is_back()
        assert len(target.program.log) < 100
