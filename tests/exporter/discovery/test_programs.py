from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwarden_exporter.discovery.programs import Program, read_programs, topmost

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


def program(pid: int) -> Program:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for found in read_programs():
            if found.pid == pid and SLEEP in found.arguments:
                return found
        time.sleep(0.01)
    raise AssertionError("not among the programs")


def test_a_program_is_seen_with_its_folder_and_what_it_writes(
    writer: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    seen = program(writer.pid)
    assert seen.folder == tmp_path / "work"
    assert seen.written == (tmp_path / "logs" / "out.log",)
    assert seen.parent == os.getpid()


def test_a_program_works_where_it_was_started_and_where_it_writes(
    writer: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    seen = program(writer.pid)
    assert seen.works_in(tmp_path / "work")
    assert seen.works_in(tmp_path / "logs")
    assert not seen.works_in(tmp_path / "elsewhere")


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
def test_a_program_works_in_the_folder_it_is_told_of(
    arguments: tuple[str, ...], *, works: bool
) -> None:
    assert Program(7, arguments, folder=Path("/data")).works_in(Path("/data/run")) is works


def test_whoever_asks_is_no_program_of_a_run() -> None:
    pids = {found.pid for found in read_programs()}
    assert os.getpid() not in pids
    assert os.getppid() not in pids


def test_the_topmost_are_those_that_none_of_the_others_has_started() -> None:
    everything = [
        Program(1, ("init",)),
        Program(10, ("train",), parent=1),
        Program(11, ("sh",), parent=10),
        Program(12, ("loader",), parent=11),
        Program(20, ("serve",), parent=1),
        Program(31, ("a",), parent=32),
        Program(32, ("b",), parent=31),
    ]
    chosen = [everything[1], everything[3], everything[4]]
    assert [found.pid for found in topmost(chosen, everything)] == [10, 20]
    assert [found.pid for found in topmost(everything[5:6], everything)] == [31]
