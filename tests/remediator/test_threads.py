"""Threads that are started beforehand: all of them, or none that keeps the program from ending."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

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
