"""What a training reports with `trainwarden.beat`, and what the exporter reads of it."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

import trainwarden
from trainwarden import heartbeat
from trainwarden.run.folder import state_folder
from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.processes.procfs import read_process
from trainwarden_exporter.progress.beats import Beat, default_beats_folder, read_beats

WAIT_SECONDS = 180


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of beats, with a writer that starts with nothing."""
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(tmp_path))
    for name in ("RANK", "TRAINWARDEN_RUN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(heartbeat, "WRITE_SECONDS", 0.01)
    writer = heartbeat.Writer()
    monkeypatch.setattr(heartbeat, "_writer", writer)
    yield tmp_path / "beats"
    writer.close()


def seen(folder: Path) -> Beat:
    """What the exporter reads once all that waits is written."""
    heartbeat._writer.close()
    (beat,) = read_beats(folder)
    return beat


def test_the_exporter_reads_what_was_reported_last(folder: Path) -> None:
    for step in range(5):
        trainwarden.beat(step=step, total=10, loss=1.0 / (step + 1))
    trainwarden.beat(phase="saving", lr=1e-4)
    beat = seen(folder)
    process = read_process(os.getpid())
    assert process is not None
    assert beat.identity == process.identity
    assert not beat.ended
    assert (beat.step, beat.total, beat.phase) == (4, 10, Phase.SAVING)
    assert beat.numbers == {"loss": 0.2, "lr": 1e-4}
    assert beat.step_time <= beat.phase_time <= beat.written


def test_a_step_that_is_repeated_keeps_its_time(folder: Path) -> None:
    trainwarden.beat(step=3)
    trainwarden.beat(step=3, loss=math.nan)
    beat = seen(folder)
    assert beat.step_time < beat.written
    assert math.isnan(beat.numbers["loss"])


def test_each_number_keeps_the_time_of_its_report(folder: Path) -> None:
    trainwarden.beat(step=3, loss=math.nan)
    trainwarden.beat(step=4, reward=1)
    beat = seen(folder)
    assert beat.number_times["loss"] < beat.written
    assert beat.number_times["reward"] == beat.written


def test_a_phase_lasts_as_long_as_its_block(folder: Path) -> None:
    seen_phases = []

    def record() -> None:
        seen_phases.append(heartbeat._writer.phase)

    with trainwarden.phase("evaluating"):
        record()
        with trainwarden.phase("saving"):
            record()
        record()
    with pytest.raises(KeyError), trainwarden.phase("saving"):
        raise KeyError
    record()
    assert seen_phases == ["evaluating", "saving", "evaluating", "training"]
    assert seen(folder).phase is Phase.TRAINING


def test_of_other_ranks_only_the_steps_are_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    trainwarden.beat(phase="saving", loss=0.5)
    trainwarden.beat(step=1, total=9, phase="saving", loss=0.5)
    beat = seen(folder)
    assert (beat.rank, beat.total, beat.phase, beat.numbers) == (1, None, None, {})
    assert beat.steps == {1: beat.written}


def test_a_rank_without_a_number_reports_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "none")
    trainwarden.beat(step=1)
    heartbeat._writer.close()
    assert not folder.exists()


def kept(seconds: float, steps: int, first: int = 0) -> list[int]:
    """The steps whose time is kept, where each takes so many seconds."""
    found: deque[tuple[int, float]] = deque(maxlen=heartbeat.MAX_STEPS)
    for step in range(first, first + steps):
        heartbeat.keep_step(found, step, 1e9 + step * seconds)
    return [step for step, _ in found]


def test_of_slow_steps_all_are_kept_and_of_fast_ones_the_same_by_all_ranks() -> None:
    assert kept(1.0, 30) == list(range(30))
    assert kept(600.0, 500) == list(range(380, 500))
    for seconds in (0.001, 0.01, 0.3, 0.6, 0.9):
        found = kept(seconds, int(300 / seconds))
        assert 20 < len(found) <= heartbeat.MAX_STEPS
        other = kept(seconds * 1.01, int(299 / seconds), first=3)
        assert len({*found} & {*other}) >= 20


def test_of_a_run_that_resumes_earlier_steps_are_dropped() -> None:
    found: deque[tuple[int, float]] = deque()
    for number, step in enumerate((7, 8, 8, 9, 9, 4, 5)):
        heartbeat.keep_step(found, step, 1e9 + number)
    assert [step for step, _ in found] == [4, 5]


def test_the_run_is_named_by_its_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWARDEN_RUN", "grpo")
    trainwarden.beat(step=1)
    assert seen(folder).run == "grpo"


class Tensor:
    """Has a value, and reading it would wait for the GPU."""

    def __float__(self) -> float:
        raise AssertionError("the value was read")


@pytest.mark.parametrize("value", [Tensor(), "text", None, [1.0]])
def test_what_is_no_plain_number_is_ignored_and_logged_once(
    folder: Path, caplog: pytest.LogCaptureFixture, value: Any
) -> None:
    with caplog.at_level(logging.WARNING, logger="trainwarden"):
        for step in range(3):
            trainwarden.beat(step=step, loss=value, reward=1)
        assert seen(folder).numbers == {"reward": 1}
    assert caplog.messages == ["beat: loss is not a plain number: pass its .item()"]


@pytest.mark.parametrize(
    "arguments", [{"step": "three"}, {"step": math.nan}, {"total": object()}, {"step": [1]}]
)
def test_it_never_raises(folder: Path, arguments: dict[str, Any]) -> None:
    trainwarden.beat(**arguments)
    trainwarden.beat(step=7)
    assert seen(folder).step == 7


def test_a_folder_that_cannot_be_made_is_no_error(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder.write_text("a file")
    trainwarden.beat(step=1)
    heartbeat._writer.close()
    assert heartbeat._writer._closed.is_set()
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("folder")
def test_a_disk_that_hangs_holds_neither_a_call_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hanging, released = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        hanging.set()
        released.wait(WAIT_SECONDS)

    monkeypatch.setattr(heartbeat, "write", hang)
    monkeypatch.setattr(heartbeat, "EXIT_SECONDS", 0.01)
    trainwarden.beat(step=0)
    assert hanging.wait(WAIT_SECONDS)
    for step in range(3 * heartbeat.MAX_WAITING):
        trainwarden.beat(step=step)
    heartbeat._writer.close()
    assert not heartbeat._writer._closed.is_set()
    assert len(heartbeat._writer.waiting) == heartbeat.MAX_WAITING
    released.set()
    assert heartbeat._writer._closed.wait(WAIT_SECONDS)


def test_what_another_account_put_there_is_not_written(tmp_path: Path) -> None:
    precious, path = tmp_path / "precious", tmp_path / "1.beat"
    precious.write_text("precious")
    (tmp_path / ".1.beat.new").symlink_to(precious)
    heartbeat.write(path, {"step": 5})
    assert precious.read_text() == "precious"
    assert path.read_text() == '{"step": 5}\n'
    assert not path.is_symlink()


def test_files_of_processes_that_are_long_gone_are_removed(folder: Path) -> None:
    folder.mkdir()
    old, other = folder / "1.beat", folder / "1.txt"
    for path in (old, other):
        path.write_text("{}")
        os.utime(path, (0, 0))
    trainwarden.beat(step=1)
    heartbeat._writer.close()
    assert not old.exists()
    assert other.exists()


FORKING = """
import os, threading, time, trainwarden
threads = [threading.Thread(target=trainwarden.beat, args=(n,)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
trainwarden.beat(step=100)
child = os.fork()
if child == 0:
    trainwarden.beat(step=200)  # its end writes, as that of every program
    raise SystemExit
os.waitpid(child, 0)
trainwarden.beat(step=101)
"""


def test_threads_and_forks_report_and_the_last_step_is_written_at_the_end(tmp_path: Path) -> None:
    environment = os.environ | {"TRAINWARDEN_FOLDER": str(tmp_path)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]
    subprocess.run(command, env=environment, check=True, timeout=WAIT_SECONDS)
    beats = read_beats(tmp_path / "beats")
    assert sorted(beat.step or 0 for beat in beats) == [101, 200]
    assert all(beat.ended for beat in beats)


def test_a_process_that_is_killed_loses_no_more_than_the_last_second(tmp_path: Path) -> None:
    script = "import time, trainwarden; trainwarden.beat(step=5); time.sleep(600)"
    environment = os.environ | {"TRAINWARDEN_FOLDER": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as process:
        try:
            until(lambda: bool(read_beats(tmp_path / "beats")), seconds=WAIT_SECONDS)
        finally:
            process.kill()
    (beat,) = read_beats(tmp_path / "beats")
    assert (beat.step, beat.ended) == (5, True)


def test_the_exporter_and_the_run_command_look_in_the_same_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases: tuple[dict[str, str], ...] = (
        {},
        {"XDG_STATE_HOME": "/state"},
        {"XDG_STATE_HOME": "relative"},
        {"TRAINWARDEN_FOLDER": "/run/tw"},
    )
    for variables in cases:
        for name in ("XDG_STATE_HOME", "TRAINWARDEN_FOLDER"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert heartbeat.beats_folder() == default_beats_folder() == state_folder() / "beats"


def test_it_imports_nothing_but_the_standard_library() -> None:
    script = (
        "import sys; before = set(sys.modules); import trainwarden;"
        "print(*(set(sys.modules) - before)); trainwarden.beat;"
        "print(*{name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    )
    command = [sys.executable, "-S", "-c", script]
    environment = os.environ | {"PYTHONPATH": str(Path(trainwarden.__file__).parents[1])}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    at_import, packages = result.stdout.splitlines()
    assert at_import == "trainwarden"
    assert set(packages.split()) <= {"trainwarden", "__main__", "sitecustomize", "usercustomize"}
