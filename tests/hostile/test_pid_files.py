"""Another account writes the pid file of a worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.accounts import OPERATOR, STRANGER, needs_root, open_folder, started

from trainwarden_exporter.processes.matching import Matcher, Selector, WorkerKey

pytestmark = needs_root

TRAINER = WorkerKey("demo", "trainer")


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture
def victim() -> Iterator[int]:
    """The pid of a process of the account of the run."""
    with started(["sleep", "600"], OPERATOR) as child:
        yield child.pid


def write(path: Path, pid: int, owner: int, mode: int = 0o644) -> Path:
    path.write_text(f"{pid}\n")
    path.chmod(mode)
    os.chown(path, owner, owner)
    return path


def found(path: Path) -> list[int]:
    """The pids of the worker with this pid file."""
    trees = Matcher({TRAINER: Selector.model_validate({"pid_file": path})}).find()
    return [root.pid for root in trees[TRAINER].roots]


@pytest.mark.parametrize("owner", [0, OPERATOR])
def test_a_pid_file_of_root_or_of_the_account_of_the_process_is_believed(
    folder: Path, victim: int, owner: int
) -> None:
    assert found(write(folder / "pid", victim, owner)) == [victim]


def test_a_pid_file_of_another_account_is_not_believed(folder: Path, victim: int) -> None:
    assert found(write(folder / "pid", victim, STRANGER)) == []


@pytest.mark.parametrize("mode", [0o666, 0o622])
def test_a_pid_file_that_others_can_write_is_not_believed(
    folder: Path, victim: int, mode: int
) -> None:
    assert found(write(folder / "pid", victim, OPERATOR, mode)) == []


def test_a_pid_file_in_a_folder_that_others_can_write_is_not_believed(
    folder: Path, victim: int
) -> None:
    folder.chmod(0o777)
    assert found(write(folder / "pid", victim, OPERATOR)) == []
    folder.chmod(0o1777)  # as /tmp: others cannot replace the file
    assert found(folder / "pid") == [victim]


def test_a_pid_file_in_a_folder_of_another_account_is_not_believed(victim: int) -> None:
    with open_folder(STRANGER) as folder:
        assert found(write(folder / "pid", victim, OPERATOR)) == []


def test_a_link_of_another_account_to_a_pid_file_of_root_is_not_followed(
    folder: Path, victim: int
) -> None:
    real = write(folder / "of-root", victim, 0)
    folder.chmod(0o1777)
    (folder / "pid").symlink_to(real)
    assert found(folder / "pid") == [victim]
    os.chown(folder / "pid", STRANGER, STRANGER, follow_symlinks=False)
    assert found(folder / "pid") == []
