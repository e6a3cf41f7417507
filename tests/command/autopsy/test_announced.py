"""The autopsy of a run that `trainwarden run` started: its log is in the folder of the state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from autopsying import examine
from trainwarden.autopsy.report import render
from trainwarden.autopsy.verdict import Verdict
from trainwarden.commands.autopsy import announced_in
from trainwarden.run.process_tree import read_start_ticks

CODE = "import sys; [print(f'step {n}/300 loss 1') for n in range(1, 28)]; sys.stdout.flush(); "


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def run_in(folder: Path, end: str) -> Verdict:
    argv = [sys.executable, "-m", "trainwarden", "run", "--name", "r", "--", sys.executable]
    subprocess.run([*argv, "-c", CODE + end], cwd=folder, check=False, capture_output=True)
    return examine(folder, announced_in=announced_in)


def announce(folder: Path, name: str, **content: Any) -> None:
    (folder / "runs.d").mkdir(parents=True, exist_ok=True)
    whole: dict[str, Any] = {"run": name, "worker": "w", "state": "failed"}
    whole["log"] = str(folder / f"{name}.log")
    whole |= {"exit_status": 256, "started_at": 1.0, "ended_at": 2.0, "path": None, **content}
    (folder / "runs.d" / f"{name}@w.json").write_text(json.dumps(whole))


def test_the_log_and_the_signal_of_a_killed_run_are_read(work: Path) -> None:
    verdict = run_in(work, "import os; os.kill(os.getpid(), 9)")
    assert verdict.case.last_step == 27
    assert [one.cause.name for one in verdict.likely] == ["killed"]
    assert "killed by SIGKILL" in render(verdict)


def test_exit_status_0_is_the_end_of_the_run_whatever_its_last_step(work: Path) -> None:
    verdict = run_in(work, "")
    assert verdict.headline == "Nothing wrong was found: the run finished."
    assert "finished, exit status 0" in render(verdict)


def test_a_run_that_still_runs_is_active_however_old_its_log(work: Path) -> None:
    log = work / "train.log"
    log.write_text("step 1/9 loss 1\nstep 2/9 loss 1\n")
    os.utime(log, (1e9, 1e9))
    own: dict[str, Any] = {"pid": os.getpid(), "start_ticks": read_start_ticks(os.getpid())}
    own |= {"wrapper_pid": 0, "wrapper_start_ticks": 0, "exit_status": None, "ended_at": None}
    announce(work.parent / "state", "r", cwd=str(work), state="running", log=str(log), **own)
    verdict = examine(work, now=time.time(), announced_in=announced_in)
    assert "active" in verdict.headline
    assert [reading.name for reading in verdict.case.logs] == ["train.log"]


def test_of_several_runs_in_a_folder_the_last_one_counts(work: Path) -> None:
    state = work.parent / "state"
    announce(state, "old", cwd=str(work), started_at=1.0)
    announce(state, "new", cwd=str(work), started_at=9.0, exit_status=int(signal.SIGTERM))
    announce(state, "elsewhere", cwd="/", started_at=99.0)
    (found,) = announced_in(work)
    assert (found.run, found.how) == ("new", "killed by SIGTERM")
    verdict = examine(work, announced_in=announced_in)
    assert any("new.log: No such file" in one for one in verdict.case.material.unread)


@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 100_000, '{"cwd": "\\u0000"}', '{"cwd'])
def test_what_is_no_announcement_is_left_out(work: Path, content: str) -> None:
    runs = work.parent / "state" / "runs.d"
    runs.mkdir(parents=True)
    (runs / "r@w.json").write_text(content)
    assert announced_in(work) == ()


def test_no_memory_limit_is_proposed_but_as_a_comment(work: Path) -> None:
    report = render(run_in(work, "import os; os.kill(os.getpid(), 9)"))
    lines = [line.strip() for line in report.splitlines() if "memory_limit:" in line]
    assert lines
    assert all(line.startswith("#") for line in lines)
