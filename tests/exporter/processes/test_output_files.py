from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from trainwarden_exporter.processes.output_files import read_output_files


@contextmanager
def running(stdout: IO[bytes] | int, stderr: IO[bytes] | int) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=stdout, stderr=stderr
    )
    try:
        yield process.pid
    finally:
        process.communicate(b"\n")


def test_files_behind_output_and_error_are_found_once(tmp_path: Path) -> None:
    path = tmp_path / "any name"
    with path.open("wb") as file, running(file, subprocess.STDOUT) as pid:
        assert read_output_files(pid) == (str(path),)


def test_pipes_devices_and_deleted_files_are_none(tmp_path: Path) -> None:
    path = tmp_path / "gone"
    with path.open("wb") as file, running(file, subprocess.DEVNULL) as pid:
        path.unlink()
        assert read_output_files(pid) == ()
    with running(subprocess.PIPE, subprocess.DEVNULL) as pid:
        assert read_output_files(pid) == ()


def test_a_file_that_is_not_open_for_writing_is_none(tmp_path: Path) -> None:
    """Any account may have a descriptor with O_PATH of a file that only root may read."""
    path = tmp_path / "secret"
    path.write_text("of root")
    for flags in (os.O_PATH, os.O_RDONLY):
        descriptor = os.open(path, flags)
        with running(descriptor, subprocess.DEVNULL) as pid:
            assert read_output_files(pid) == ()
        os.close(descriptor)


def test_a_process_that_has_ended_has_none() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert read_output_files(process.pid) == ()
    assert os.getpid() != process.pid
