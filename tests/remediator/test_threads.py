"""Threads that are started beforehand: all of them, or none that keeps the program from ending."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from tests.remediator.conftest import Box
from tests.remediator.test_crash import Program
from tests.roomless import with_room_for

from trainwarden_remediator.ownlook import APART
from trainwarden_remediator.threads import THREADS, ready_threads

HALF = """
import threading
from trainwarden_remediator.threads import ready_threads

started, start = [], threading.Thread.start

def some(thread):
    if len(started) == 8:
        raise {error}("can't start new thread")
    started.append(thread)
    start(thread)

threading.Thread.start = some
try:
    ready_threads()
except {error} as error:
    print("raised:", error)
for thread in started:
    thread.join(10)
print("left:", sum(thread.is_alive() for thread in started))
"""

LANES = (
    "look where the exporter cannot be asked",
    *(f"look at checkpoints, {number}" for number in range(APART)),
    "watch what stands below the targets",
    "prune the journal",
)


@pytest.fixture
def program(box: Box) -> Iterator[Program]:
    program = Program(box)
    yield program
    program.close()


def test_all_of_them_run_already() -> None:
    before = threading.active_count()
    executor = ready_threads()
    try:
        assert threading.active_count() == before + THREADS
        busy, go_on = threading.Barrier(THREADS + 1), threading.Event()
        for _ in range(THREADS):
            executor.submit(lambda: (busy.wait(10), go_on.wait(10)))
        busy.wait(10)
        assert threading.active_count() == before + THREADS
        go_on.set()
    finally:
        executor.shutdown()


@pytest.mark.parametrize("error", ["RuntimeError", "MemoryError"])
def test_where_only_some_can_be_had_these_end_in_silence(error: str) -> None:
    command = [sys.executable, "-c", HALF.format(error=error)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert ended.stdout == "raised: can't start new thread\nleft: 0\n"
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("threads", "needed"),
    [
        (THREADS - 1, f"cannot begin: {THREADS} threads are needed"),
        *((THREADS + n, f'no thread "{lane}"') for n, lane in enumerate(LANES)),
    ],
)
def test_a_box_with_too_few_for_all_that_is_begun_with_is_one_clear_line(
    program: Program, threads: int, needed: str
) -> None:
    child = program.start(with_room_for(threads))
    assert child.wait(10) == 1
    assert program.log == f"{needed}: can't start new thread\n"


def test_one_that_has_its_threads_and_can_have_no_more_stops_in_peace(program: Program) -> None:
    child = program.start(with_room_for(THREADS + len(LANES)))
    child.send_signal(signal.SIGTERM)
    assert child.wait(10) == 0
    assert program.log.splitlines()[-1].endswith("msg=stopped")
