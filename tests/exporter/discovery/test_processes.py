from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwarden_exporter.discovery.processes import Candidate, read_candidates, topmost

SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that works in one folder and writes its output to another."""
    (tmp_path / "work").mkdir()
    (tmp_path / "logs").mkdir()
    with (
        (tmp_path / "logs" / "out.log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-S", "-c", SLEEP, "--data", "../input"],
            cwd=tmp_path / "work",
            stdout=log,
            stdin=subprocess.DEVNULL,
        ) as process,
    ):
        yield process
        process.kill()


def candidate(pid: int) -> Candidate:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for found in read_candidates():
            if found.pid == pid and SLEEP in found.arguments:
                return found
        time.sleep(0.01)
    raise AssertionError("not among the programs")


def test_a_program_was_started_where_its_script_is_and_not_where_its_starter_was(
    tmp_path: Path,
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.py").write_text("input()")
    environment = {**os.environ, "PWD": str(tmp_path)}
    started = []
    for folder, script in (("run", "train.py"), (".", "run/train.py")):
        with subprocess.Popen(
            [sys.executable, "-S", script],
            cwd=tmp_path / folder,
            env=environment,
            stdin=subprocess.PIPE,
        ) as process:
            started += [one.start_folder for one in read_candidates() if one.pid == process.pid]
            process.kill()
    assert started == [None, tmp_path]


def test_a_program_is_seen_with_its_folder_and_what_it_writes(
    writer: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    seen = candidate(writer.pid)
    assert seen.folder == tmp_path / "work"
    assert seen.written == (tmp_path / "logs" / "out.log",)
    assert seen.parent == os.getpid()


def test_a_program_works_where_it_was_started_and_where_it_writes(
    writer: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    seen = candidate(writer.pid)
    assert seen.uses_folder(tmp_path / "work")
    assert seen.uses_folder(tmp_path / "logs")
    assert not seen.uses_folder(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("arguments", "works"),
    [
        (("python3", "t.py", "--out", "/data/run"), True),
        (("python3", "t.py", "--out=/data/run/x"), True),
        (("python3", "t.py", "--out", "run"), True),
        (("python3", "t.py", "root=run/sub"), True),
        (("python3", "t.py", "--out", "/data/runner"), False),
        (("python3", "t.py", "--run"), False),
    ],
)
def test_a_program_works_in_the_folder_of_its_arguments(
    arguments: tuple[str, ...], *, works: bool
) -> None:
    assert Candidate(7, arguments, folder=Path("/data")).uses_folder(Path("/data/run")) is works


def test_the_calling_process_is_no_program_of_a_run() -> None:
    pids = {found.pid for found in read_candidates()}
    assert os.getpid() not in pids
    assert os.getppid() not in pids


def test_the_topmost_were_started_by_none_of_the_others() -> None:
    all_candidates = [
        Candidate(1, ("init",)),
        Candidate(10, ("train",), parent=1),
        Candidate(11, ("sh",), parent=10),
        Candidate(12, ("loader",), parent=11),
        Candidate(20, ("serve",), parent=1),
        Candidate(31, ("a",), parent=32),
        Candidate(32, ("b",), parent=31),
    ]
    chosen = [all_candidates[1], all_candidates[3], all_candidates[4]]
    assert [found.pid for found in topmost(chosen, all_candidates)] == [10, 20]
    assert [found.pid for found in topmost(all_candidates[5:6], all_candidates)] == [31]


def test_a_file_of_events_beside_the_output_is_no_log() -> None:
    written = (Path("/r/any"), Path("/r/events.out.tfevents.1.host"))
    assert Candidate(1, ("a",), written=written).outputs == written[:1]
    assert Candidate(1, ("a",), written=(Path("/r/o"), Path("/r/e.err"))).outputs[1:]
