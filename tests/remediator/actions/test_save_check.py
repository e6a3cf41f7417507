"""A save that begins right before the signal, by real processes and folders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.remediator.process_yard import Steps, Yard, alive
from tests.waiting import until

from trainwarden_exporter.checkpoints.scanner import CheckpointScanner
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import checkpoint_specs
from trainwarden_exporter.runtime import bounded_calls
from trainwarden_remediator.actions.save_check import (
    OUTSIDE_RECENT_SECONDS,
    RECENT_SECONDS,
    Save,
    SaveCheck,
    SaveWait,
    written_files,
)
from trainwarden_remediator.exceptions import ActionDeferredError

KIND = {
    "name": "default",
    "folder": "out",
    "entry": r"step_(?P<step>\d+)",
    "complete": {"marker": ["DONE"]},
}

SAVER = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[2]) / "out" / "step_7"
folder.mkdir(parents=True)
with open(folder / "weights", "w") as file:
    print("up", flush=True)
    while not (folder.parents[1] / "finish").exists():
        time.sleep(0.02)
    file.write("whole")
(folder / "DONE").touch()
time.sleep(30)
"""
NEVER = "9" * 9


def look(folder: Path, *, now: float | None = None) -> SaveCheck:
    run = RunConfig.model_validate({"name": "demo", "path": folder, "checkpoints": [KIND]})
    return SaveCheck(checkpoint_specs(run), now=time.time if now is None else lambda: now)


def test_a_file_of_a_checkpoint_that_is_open_for_writing_is_a_save(tmp_path: Path) -> None:
    entry = tmp_path / "out" / "step_3"
    entry.mkdir(parents=True)
    (entry / "weights").touch()
    (tmp_path / "train.log").touch()
    old = time.time() + RECENT_SECONDS + 1
    with (entry / "weights").open(), (tmp_path / "train.log").open("a"):
        assert not look(tmp_path, now=old).saves([os.getpid()])
    with (entry / "weights").open("r+"):
        assert look(tmp_path, now=old).saves([os.getpid()])
        assert not look(tmp_path, now=old).saves([int(NEVER)])
        assert str(entry / "weights") in written_files(os.getpid())


def test_an_incomplete_checkpoint_written_a_moment_ago_is_a_save(tmp_path: Path) -> None:
    entry = tmp_path / "out" / "step_3"
    entry.mkdir(parents=True)
    (entry / "weights").write_text("half")
    assert look(tmp_path).saves([])
    assert not look(tmp_path, now=time.time() + RECENT_SECONDS + 1).saves([])
    (entry / "DONE").touch()
    assert not look(tmp_path).saves([])


def test_a_run_that_saves_all_the_time_is_waited_for_once(tmp_path: Path) -> None:
    """The save that was under way ends; the next one, already begun, is none to wait for."""
    first, second = (tmp_path / "out" / f"step_{step}" for step in (3, 4))
    first.mkdir(parents=True)
    (first / "weights").write_text("half")
    wait = SaveWait(look(tmp_path))
    assert wait.goes_on([])
    (first / "DONE").touch()
    second.mkdir()
    (second / "weights").write_text("half")
    assert look(tmp_path).saves([])
    assert not wait.goes_on([])


def test_a_save_that_goes_on_in_another_file_is_still_waited_for(tmp_path: Path) -> None:
    entry = tmp_path / "out" / "step_3"
    entry.mkdir(parents=True)
    wait = SaveWait(look(tmp_path))
    with (entry / "weights").open("w"):
        assert wait.goes_on([os.getpid()])
    with (entry / "optimizer").open("w"):
        assert wait.goes_on([os.getpid()])
    (entry / "DONE").touch()
    assert not wait.goes_on([os.getpid()])


def test_a_checkpoint_that_is_written_outside_the_folder_is_a_save(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    path = tmp_path / "elsewhere.pt"
    with path.open("w"), (tmp_path / "notes.txt").open("w"):
        (save,) = look(tmp_path / "run").saves([os.getpid()])
        assert save.place == str(path)
        late = time.time() + OUTSIDE_RECENT_SECONDS + 1
        assert not look(tmp_path / "run", now=late).saves([os.getpid()])
    assert not look(tmp_path / "run").saves([os.getpid()])


def test_in_a_folder_that_does_not_answer_an_open_file_is_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = tmp_path / "out" / "step_3"
    entry.mkdir(parents=True)
    answers = threading.Event()
    monkeypatch.setattr(CheckpointScanner, "__call__", lambda _: answers.wait())
    monkeypatch.setattr(bounded_calls, "SECONDS", 0.2)
    try:
        with (entry / "weights").open("w"):
            assert look(tmp_path).saves([os.getpid()]) == {Save(str(tmp_path), 3)}
        assert not look(tmp_path).saves([os.getpid()])
    finally:
        answers.set()
        until(lambda: not bounded_calls._running)


def test_without_checkpoints_no_save_is_seen() -> None:
    assert not SaveCheck(()).saves([os.getpid()])


def trainer(yard: Yard) -> subprocess.Popen[str]:
    """A trainer in the middle of a save that the exporter has not seen yet."""
    yard.acting(checkpoints=[KIND])
    return yard.run_command(sys.executable, "-c", SAVER, yard.mark, yard.folder)[0]


def test_sigterm_waits_for_a_save_that_the_exporter_has_not_seen(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden_remediator.actions.process.SAVE_LOOK_INTERVAL_SECONDS", 0.01)
    own = trainer(yard)
    steps = Steps()

    def record_step(step: str, **facts: object) -> None:
        steps(step, **facts)
        if step == "stop_deferred":
            assert alive(own.pid)
            (yard.folder / "finish").touch()

    yard.action.perform("7", record_step)
    assert [step for step, _ in steps] == ["stop_deferred", "stop", "start"]
    assert (yard.folder / "out" / "step_7" / "DONE").exists()
    assert (yard.folder / "out" / "step_7" / "weights").read_text() == "whole"
    assert own.wait(60) == -signal.SIGTERM


def test_an_operator_who_holds_during_the_wait_for_a_save_is_heeded(yard: Yard) -> None:
    own, steps = trainer(yard), Steps()
    yard.action._target = yard.action._target.model_copy(update={"max_save_delay": 0.1})

    def confirm() -> None:
        assert steps  # the wait was recorded, and is over
        raise ActionDeferredError("held")

    with pytest.raises(ActionDeferredError, match="held"):
        yard.action.perform("7", steps, confirm=confirm)
    assert len(steps) == 1
    assert alive(own.pid)


def test_once_the_writer_has_ended_there_is_no_wait(yard: Yard) -> None:
    own = trainer(yard)

    def record_step(step: str, **_: object) -> None:
        if step == "stop_deferred":
            own.kill()
            own.wait()

    began = time.monotonic()
    with pytest.raises(Exception, match="has ended since the decision"):
        yard.action.perform("7", record_step)
    assert time.monotonic() - began < yard.action._target.max_save_delay / 2
    until(lambda: not yard.tree().roots)
    yard.action.perform("8", Steps())
    assert [root.pid for root in yard.tree().roots]
