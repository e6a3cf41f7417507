"""Real processes that wait in C code: their innermost frame is that of the user's program."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.waiting import until

from trainwarden_exporter.processes.ancestry import descendants
from trainwarden_exporter.processes.listening_ports import read_listeners
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import read_processes
from trainwarden_exporter.processes.stacks.activity import SAMPLES
from trainwarden_exporter.processes.stacks.kernel_state import read_kernel_state
from trainwarden_exporter.processes.stacks.model import Diagnosis, Member
from trainwarden_exporter.processes.stacks.sampler import RunSampler

if TYPE_CHECKING:
    import subprocess

    from tests.exporter.conftest import Start

KEY = WorkerKey("night", "trainer")
HELD = "import os, subprocess, sys, threading, time\nheld = threading.Lock(); held.acquire()\n"
READY = "print(flush=True)\n"
ENDLESS = f"[sys.executable, '-c', {HELD + 'held.acquire()'!r}]"
SLEEPS = "[sys.executable, '-c', 'import time; time.sleep(1000)']"


@pytest.fixture
def run(start: Start) -> Iterator[Start]:
    """Starts programs, and ends their children before them when the test is over."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str, *arguments: str) -> subprocess.Popen[str]:
        started.append(start(code, *arguments))
        return started[-1]

    yield run
    for pid in descendants(read_processes(), [one.pid for one in started]):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def members(process: subprocess.Popen[str], count: int = 1) -> list[Member]:
    """The process as a trainer, and those below it: `count` in all, once each of them waits."""

    def alive() -> list[Member]:
        table = read_processes()
        pids = sorted((process.pid, *descendants(table, [process.pid])))
        return [
            Member(
                KEY,
                "trainer",
                table[pid].identity,
                table[pid].parent_pid,
                is_trainer=pid == process.pid,
            )
            for pid in pids
            if pid in table and table[pid].alive
        ]

    def all_wait() -> bool:
        found, looks = alive(), []
        for _ in range(2):
            states = [read_kernel_state(one.identity) for one in found]
            looks.append([one and (one.wait_channel, one.switches) for one in states])
            time.sleep(0.1)
        return len(found) == count and looks[0] == looks[1]

    until(all_wait)
    return alive()


def seen(found: list[Member], times: int = SAMPLES) -> Diagnosis:
    """Looks, as many as a round has, five seconds apart by a clock of the test's own."""
    now = [1000.0]
    sampler = RunSampler(clock=lambda: now[0])
    for _ in range(times):
        diagnosis = sampler.look(1.0, found)
        now[0] += 5
    return diagnosis


@pytest.mark.parametrize(
    ("program", "count", "chain"),
    [
        (
            "def take():\n    with held: pass\n" + READY + "take()",
            1,
            "waits for a lock or another thread in take (<string>:4)",
        ),
        (
            "import queue\ndef take(): queue.SimpleQueue().get()\n" + READY + "take()",
            1,
            "waits for a lock or another thread in take (<string>:4)",
        ),
        (READY + "os.read(os.pipe()[0], 1)", 1, "waits for a pipe"),
        (
            f"child = subprocess.Popen({ENDLESS})\n{READY}os.waitpid(child.pid, 0)",
            2,
            " waits for a lock or another thread in <module> (<string>:3)",
        ),
        (
            READY + "subprocess.run(['sh', '-c', 'read line; true'], stdin=os.pipe()[0])",
            2,
            "waits for a child process at <string>:4 ← process",
        ),
    ],
    ids=["lock", "queue", "pipe", "child", "shell"],
)
def test_a_wait_that_nothing_ends_is_stuck_and_named(
    run: Start, program: str, count: int, chain: str
) -> None:
    found = seen(members(run(HELD + program), count))

    assert found.movement == "stuck"
    assert chain in found.chain


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (READY + "held.acquire(timeout=1000)", 1),
        (f"t = threading.Thread(target=time.sleep, args=[1000]); t.start()\n{READY}t.join()", 1),
        (READY + "subprocess.run(['sleep', '1000'])", 2),
        (
            f"subprocess.Popen({ENDLESS}); subprocess.Popen(['sleep', '1000']); {READY}os.wait()",
            3,
        ),
        (
            f"subprocess.Popen({SLEEPS})\n{READY}os.read(os.pipe()[0], 1)",
            2,
        ),
    ],
    ids=["timeout", "thread", "child", "one of two children", "process"],
)
def test_a_wait_that_may_end_is_not_stuck(run: Start, program: str, count: int) -> None:
    found = seen(members(run(HELD + program), count))

    assert found.movement == "unknown"
    assert "waits for" in found.chain


def test_a_lock_beside_a_connection_to_a_process_outside_the_run_may_be_released(
    start: Start,
) -> None:
    """A thread of C code may wait for its answer; the same process is stuck without it."""
    listens = "import os, socket; s = socket.create_server(('127.0.0.1', 0))\n"
    server = start(listens + "print(flush=True); os.read(os.pipe()[0], 1)")
    port = read_listeners([server.pid])[server.pid][0].port
    connects = f"import socket; c = socket.create_connection(('127.0.0.1', {port}))\n"
    (one,) = members(start(HELD + connects + READY + "held.acquire()"))
    (far,) = members(server)

    assert seen([one]).movement == "unknown"
    assert seen([one, far]).movement == "stuck"


def test_a_thread_that_is_woken_meanwhile_gets_something(start: Start) -> None:
    """A queue of C code, into which its parent puts something now and then."""
    process = start("import sys\nprint(flush=True)\nwhile True: sys.stdin.buffer.raw.read(1)")
    (one,) = members(process)
    now = [1000.0]
    sampler = RunSampler(clock=lambda: now[0])
    for _ in range(SAMPLES):
        diagnosis = sampler.look(1.0, [one])
        assert process.stdin
        process.stdin.write("x")
        process.stdin.flush()
        members(process)
        now[0] += 5

    assert diagnosis.movement == "unknown"
    assert diagnosis.chain.endswith(f"waits for a pipe of process {os.getpid()} at <string>:3")


def test_an_idle_pool_of_threads_beside_a_main_thread_that_works_moves(start: Start) -> None:
    process = start(
        "import concurrent.futures as c\n"
        "with c.ThreadPoolExecutor(2) as pool:\n"
        "    list(pool.map(str, range(9))); print(flush=True)\n"
        "    while True: sum(range(1000))"
    )
    one = Member(KEY, "trainer", read_processes()[process.pid].identity, 1, is_trainer=True)
    sampler = RunSampler()

    until(lambda: sampler.look(1.0, [one]).movement == "moving")
