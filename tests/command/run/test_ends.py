"""A command that ends with status 0: it has finished, failed behind a pipe, or goes on."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from running_runs import Runs, is_alive, wait_for
from trainwarden.run.hidden_failure import find_final_error
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
    found = find_final_error(shown, ["python", "train.py"], "/")
    assert (found is not None and found.is_failure) == failed


SCRIPT = """#!/bin/sh
echo "preparing"
python3 train.py "$1"
echo "training ended with $?"
printf 'see %s\\n' "$1"
"""
ENDED = b"training ended with 1\n"
AT_45 = b"step 45/110\n"
BARS = b"\r 44/110 [00:44<01:06, 1.00it/s]\r 45/110 [00:45<01:05, 1.00it/s]\n"
TORCHRUN = b"%(e)s\ntrain.py FAILED\n%(d)s\nexitcode  : 1 (pid: 8)\n%(e)s\n" % {
    b"e": b"=" * 60,
    b"d": b"-" * 60,
}


def raised(error: bytes) -> bytes:
    return TRACEBACK.replace(b"RuntimeError", error)


@pytest.mark.parametrize(
    ("shown", "failed"),
    [
        (AT_45 + TRACEBACK + ENDED, True),
        (AT_45 + TRACEBACK + b"+ echo 'training ended with 1'\n" + ENDED, True),
        (AT_45 + raised(b"ray.exceptions.RayTaskError(ValueError)") + ENDED, True),
        (AT_45 + raised(b"\x1b[1;35mRuntimeError\x1b[0m") + ENDED, True),
        (AT_45 + b"[rank0]: " + TRACEBACK.replace(b"\n", b"\n[rank0]: ") + b"\n" + ENDED, True),
        (BARS + TRACEBACK + b" 41%|####     | 45/110 [00:45<01:05, 1.00it/s]\n" + ENDED, True),
        (AT_45 + TRACEBACK + b"wandb: Find logs at: ./wandb/run-1\n" + ENDED, True),
        (AT_45 + raised(b"torch.ChildFailedError") + TORCHRUN + ENDED, True),
        (AT_45 + b"job.sh: line 3: 812 Killed      python3 train.py\n" + ENDED, True),
        (AT_45 + b"Segmentation fault (core dumped)\n" + ENDED, True),
        (AT_45 + TRACEBACK + ENDED + b"Mon Nov 30 18:19:05 UTC 2026\n", True),
        (AT_45 + TRACEBACK + ENDED + b"Mon 30 Nov 2026 06:19:05 PM CET\n", True),
        (AT_45 + TRACEBACK.replace(b"Runtime", ENDED + b"Runtime"), True),  # of two streams
        (AT_45 + raised(b"requests.exceptions.Timeout") + ENDED, True),
        (AT_45 + TRACEBACK + b"early stopping, saved\n" + ENDED, None),
        (b"step 45\n" + TRACEBACK + ENDED, None),  # of how many is not known
        (AT_45 + TRACEBACK + ENDED.replace(b"1", b"0"), None),  # its program has caught it
        (b"step 110/110\n" + TRACEBACK + ENDED, None),
        (TRACEBACK + ENDED, None),
        (AT_45 + TRACEBACK + b"step 46/110\n" + ENDED, False),
        (AT_45 + TRACEBACK + b"trying again\n" * 21 + ENDED, False),
        (AT_45 + b"early stopping\n" + ENDED, False),
        (AT_45 + b"Killed 3 stale workers\n" + ENDED, False),
        (AT_45 + b"Exception ignored in: <function f>\n" + TRACEBACK + ENDED, False),
    ],
)
def test_what_a_script_prints_after_an_error_does_not_hide_a_failure(
    tmp_path: Path, shown: bytes, *, failed: bool | None
) -> None:
    """Where an error is last and may have been caught, it is not certain: None."""
    (tmp_path / "job.sh").write_text(SCRIPT)
    commands = (
        ["sh", "job.sh", "o"],
        ["./job.sh"],
        ["bash", "-ec", SCRIPT],
        ["sh", "-x", "job.sh"],
    )
    for argv in commands:
        found = find_final_error(shown, argv, str(tmp_path))
        assert (False if found is None else found.is_failure or None) == failed


@pytest.mark.parametrize(
    ("shown", "failed"),
    [
        (AT_45 + TRACEBACK + b"step 46/110 loss 1.5\n", True),  # printed right before the error
        (TRACEBACK + AT_45, True),
        (TRACEBACK.replace(b"Runtime", AT_45 + b"Runtime") + b"step 46/110\n", True),
        (AT_45 + TRACEBACK + b"step 46/110\nstep 47/110\n", None),  # it may have been caught
        (AT_45 + TRACEBACK + b"step 110/110\n", None),
        (AT_45 + TRACEBACK + b"step 46/110\nsaved\n", None),
        (AT_45 + TRACEBACK + b"".join(b"step %d/110\n" % one for one in range(46, 67)), False),
        (AT_45 + b"early stopping\n", False),
    ],
)
def test_behind_a_pipe_the_last_step_may_come_after_the_traceback(
    shown: bytes, *, failed: bool | None
) -> None:
    for command in ("python3 train.py | tee out", "set -e; python3 train.py 2>/dev/null |cat"):
        found = find_final_error(shown, ["sh", "-c", command], "/")
        assert (False if found is None else found.is_failure or None) == failed
    if b"\nstep" in shown:
        for command in ("python3 train.py || true", "python3 train.py >| out"):
            assert find_final_error(shown, ["sh", "-c", command], "/") is None


def test_a_program_that_prints_the_same_as_a_script_may_have_caught_the_error() -> None:
    for after in (ENDED, b"wandb: Find logs at: ./wandb/run-1\n"):
        found = find_final_error(AT_45 + TRACEBACK + after, ["python", "train.py"], "/")
        assert found == ("RuntimeError: no such shard: 17", False)
    assert find_final_error(AT_45 + b"Killed\n", ["python", "train.py"], "/") == ("Killed", False)


def test_a_script_that_ends_processes_may_have_killed_a_helper() -> None:
    shown = AT_45 + b"Killed\ndone\n"
    for command, failed in (("python t.py; echo done", True), ("kill -9 $!; echo done", False)):
        found = find_final_error(shown, ["sh", "-c", command], "/")
        assert found == ("Killed", failed)


def test_a_failure_that_the_last_command_of_a_script_hides_is_a_failure(
    runs: Runs, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(FAILS)
    script = tmp_path / "job.sh"
    script.write_text(f'exec 2>&1\npython3 {tmp_path}/train.py\necho "training ended with $?"\n')
    process = runs.piped("sh", str(script))
    _, shown = process.communicate()
    announced = runs.announced()
    assert (process.returncode, announced["state"], announced["exit_status"]) == (0, "failed", 0)
    assert b"its last lines are those of a failure, with steps left" in shown


def test_an_error_that_may_have_been_caught_is_announced_with_the_end(runs: Runs) -> None:
    caught = FAILS.replace("raise", "import traceback\ntry: raise")
    caught += "except RuntimeError: traceback.print_exc()\nprint('saved')\n"
    runs.piped("sh", "-c", 'exec python3 -c "$0" 2>&1', caught).communicate()
    announced = runs.announced()
    assert announced["state"] == "finished"
    assert announced["final_error"] == "RuntimeError: no such shard: 17"
    runs.piped("sh", "-c", "echo step 4/9; echo early stopping").communicate()
    announced = runs.announced("r-2")
    assert (announced["state"], announced["final_error"]) == ("finished", "")


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
