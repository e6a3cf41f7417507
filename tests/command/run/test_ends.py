"""A command that ends with status 0: it has finished, failed behind a pipe, or goes on."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Any

import pytest

from running_runs import Runs, is_alive, wait_for
from trainwarden.run.policy import hides_failure
from trainwarden_exporter.processes.announcement_files import read_announcements
from trainwarden_exporter.processes.left_behind import count_left_behind, describe_left_behind

FAILS = (
    "import sys\n"
    "for step in range(46): print(f'step {step}/110', flush=True)\n"
    "raise RuntimeError('no such shard: 17')\n"
)
TRACEBACK = b"Traceback (most recent call last):\n  File x\nRuntimeError: no such shard: 17\n"


def test_a_failure_that_a_pipe_hides_is_a_failure(runs: Runs) -> None:
    process = runs.piped("sh", "-c", f'python3 -c "{FAILS}" 2>&1 | cat')
    _, shown = process.communicate()
    announced = runs.announced()
    assert (process.returncode, announced["state"], announced["exit_status"]) == (0, "failed", 0)
    assert b"its last lines are those of a failure, with steps left" in shown


@pytest.mark.parametrize(
    ("shown", "failed"),
    [
        (b"step 45/110\n" + TRACEBACK, True),
        (b"step 45 of 110\n" + TRACEBACK + b"\r\n \n", True),
        (b"step 45/110\n" + TRACEBACK + b"saved locally, done\n", False),  # caught, as of an upload
        (b"step 110/110\n 98/100 [00:45<01:05, 1.00it/s]\n" + TRACEBACK, False),
        (b"\r 45/110 [00:45<01:05, 1.00it/s]\r\n" + TRACEBACK.replace(b"\n", b"\r\n"), True),
        (b"step 45/110\n" + TRACEBACK + b"step 46/110\n", False),  # it was caught
        (b"step 109/110\n" + TRACEBACK, False),
        (b"step 110/110\n" + TRACEBACK, False),
        (b"step 45\n" + TRACEBACK, False),  # of how many is not known
        (b"step 45/110\nException ignored in: <function f>\n" + TRACEBACK, False),
        (b"step 45/110\ndone\n", False),
        (b"step 45/110\nTraceback (most recent call last):\n  File x\n", False),
    ],
)
def test_a_traceback_with_steps_left_is_a_failure(shown: bytes, *, failed: bool) -> None:
    assert hides_failure(shown) == failed


def left_behind(runs: Runs) -> list[Any]:
    found: list[Any] = runs.announced()["goes_on"]
    return found


def test_processes_that_go_on_after_their_command_are_named(runs: Runs) -> None:
    """The training goes on as an orphan: nobody watches it, and nobody would start it again."""
    process = runs.piped("sh", "-c", "nohup sleep 1000 >/dev/null 2>&1 &")
    _, shown = process.communicate()
    try:
        assert b"1 process of it goes on, which nobody watches: start it without `nohup`" in shown
        assert runs.announced()["state"] == "finished"
        ((pid, _),) = left_behind(runs)
        read = read_announcements(runs.folder / "runs.d", time.time())
        found = [one.announcement for one in read.workers.values()]
        assert count_left_behind(found) == 1
        assert "1 process of it goes on" in describe_left_behind(1)
        assert "2 processes of it go on" in describe_left_behind(2)
    finally:
        for one, _ in left_behind(runs):
            with suppress(OSError):
                os.kill(one, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid))
    assert count_left_behind(found) == 0


def test_helpers_that_end_a_moment_later_are_not_named(runs: Runs) -> None:
    _, shown = runs.piped("sh", "-c", "sleep 0.3 >/dev/null 2>&1 &").communicate()
    assert (left_behind(runs), b"go on" in shown) == ([], False)
