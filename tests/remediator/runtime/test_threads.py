"""Threads that are started beforehand: all of them, or none that keeps the program from ending."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from tests.remediator.engine.test_crash_recovery import Program
from tests.remediator.live_host import Box
from tests.roomless import with_room_for

from trainwarden_remediator.observation.local_fallback import CHECKPOINT_THREADS
from trainwarden_remediator.runtime.memory_reserve import THREADS, start_thread_pool

HALF = """
import threading
from trainwarden_remediator.runtime.memory_reserve import start_thread_pool

started, start = [], threading.Thread.start

def some(thread):
    if len(started) == 8:
        raise {error}("can't start new thread")
    started.append(thread)
    start(thread)

threading.Thread.start = some
try:
    start_thread_pool()
except {error} as error:
    print("raised:", error)
for thread in started:
    thread.join(60)
print("left:", sum(thread.is_alive() for thread in started))
"""

LANES = (
    "observe the host",
    *(f"observe checkpoints, {number}" for number in range(CHECKPOINT_THREADS)),
    "track descendants",
    "prune the journal",
    "verify the journal",
)


KEPT = 1
"""The thread of the calls with a time limit, which have read the files by then."""


@pytest.fixture
def program(box: Box) -> Iterator[Program]:
    program = Program(box)
    yield program
    program.close()


def test_all_of_them_run_already() -> None:
    before = threading.active_count()
    executor = start_thread_pool()
    try:
        assert threading.active_count() == before + THREADS
        busy, go_on = threading.Barrier(THREADS + 1), threading.Event()
        for _ in range(THREADS):
            executor.submit(lambda: (busy.wait(60), go_on.wait(60)))
        busy.wait(60)
        assert threading.active_count() == before + THREADS
        go_on.set()
    finally:
        executor.shutdown()


@pytest.mark.parametrize("error", ["RuntimeError", "MemoryError"])
def test_where_only_some_can_be_had_these_end_in_silence(error: str) -> None:
    command = [sys.executable, "-c", HALF.format(error=error)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "raised: can't start new thread\nleft: 0\n"
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("threads", "needed"),
    [
        (THREADS - 1, f"cannot start {THREADS} threads"),
        *(
            (THREADS + KEPT + n, f'no thread "{thread_factory}"')
            for n, thread_factory in enumerate(LANES)
        ),
    ],
)
def test_a_box_with_too_few_for_all_that_is_begun_with_is_one_clear_line(
    program: Program, threads: int, needed: str
) -> None:
    child = program.start(with_room_for(threads))
    assert child.wait(60) == 1
    assert program.log == f"{needed}: can't start new thread\n"


def test_a_program_with_its_threads_and_no_more_stops_cleanly(program: Program) -> None:
    child = program.start(with_room_for(THREADS + KEPT + len(LANES)))
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0, program.log
    assert program.log.splitlines()[-1].endswith("msg=stopped")
