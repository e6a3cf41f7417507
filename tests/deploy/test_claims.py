"""Who runs the stack in a folder, and how it is ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import until

import claims
from stack import StackError
from trainwarden_exporter.processes.procfs import read_process

HOLD = """
import pathlib, sys, time, claims
with claims.claimed(pathlib.Path(sys.argv[1])):
    time.sleep(600)
"""
HOLD_SECONDS = 60


def test_a_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    lock = claims.lock_of(folder)
    assert claims.owner(lock) is None
    own = read_process(os.getpid())
    assert own is not None
    with claims.claimed(folder):
        assert claims.owner(lock) == own.identity
        with pytest.raises(StackError, match=r"runs in .* already"), claims.claimed(folder):
            pass
        assert claims.owner(lock) == own.identity
    assert claims.owner(lock) is None


def test_a_lock_that_names_nobody_is_an_error_and_ends_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with claims.claimed(folder):
        claims.lock_of(folder).write_text("someone\n")
        with pytest.raises(StackError, match="does not say which process"):
            claims.owner(claims.lock_of(folder))


def test_the_owner_is_ended_and_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    lock = claims.lock_of(folder)
    scripts = {**os.environ, "PYTHONPATH": str(Path(claims.__file__).parent)}
    with subprocess.Popen([sys.executable, "-c", HOLD, folder], env=scripts) as process:
        until(lambda: lock.exists() and lock.read_text())
        running = claims.owner(lock)
        assert running is not None
        assert running.pid == process.pid
        assert claims.end(running, seconds=HOLD_SECONDS)
    assert claims.owner(lock) is None


def test_a_process_that_does_not_end_is_left_running(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    lock = claims.lock_of(folder)
    scripts = {**os.environ, "PYTHONPATH": str(Path(claims.__file__).parent)}
    stubborn = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{HOLD}"
    with subprocess.Popen([sys.executable, "-c", stubborn, folder], env=scripts) as process:
        until(lambda: lock.exists() and lock.read_text())
        running = claims.owner(lock)
        assert running is not None
        assert not claims.end(running, seconds=0.3)
        assert process.poll() is None
        process.kill()
