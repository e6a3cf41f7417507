from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainwarden_exporter.processes.pid_file import PidFile, parse_pid, read_pid_file
from trainwarden_exporter.processes.procfs import Identity, Process
from trainwarden_exporter.processes.start_times import start_timestamp


@pytest.mark.parametrize(
    ("text", "pid"),
    [
        ("123\n", 123),
        ("  123 8080\n", 123),
        ("", None),
        ("\n", None),
        ("0", None),
        ("-5", None),
        ("12a", None),
        ("²", None),
        ("python", None),
    ],
)
def test_a_pid_file_opens_with_the_pid(text: str, pid: int | None) -> None:
    assert parse_pid(text) == pid


def test_a_file_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert read_pid_file(tmp_path / "none.pid") is None


def test_a_file_says_the_pid_and_when_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "x.pid"
    path.write_text("77\n")
    os.utime(path, (1000, 2000))

    assert read_pid_file(path) == PidFile(77, 2000.0)


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.pid")

    assert read_pid_file(tmp_path / "x.pid") is None


def test_a_file_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.pid").symlink_to("x.pid")

    with pytest.raises(OSError, match="symbolic links"):
        read_pid_file(tmp_path / "x.pid")


@pytest.mark.parametrize(
    ("written_after_start", "meant"), [(3600.0, True), (0.0, True), (-1.5, True), (-3.0, False)]
)
def test_a_process_younger_than_the_file_has_only_inherited_the_pid(
    written_after_start: float, *, meant: bool
) -> None:
    identity = Identity(77, 100_000)
    process = Process(identity, 1, "python", "S", 1, 0.0, 0, ("python", 1))
    file = PidFile(77, start_timestamp(identity) + written_after_start)

    assert file.matches(process) is meant
