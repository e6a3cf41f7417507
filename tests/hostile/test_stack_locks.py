"""A stack runs in a folder whose parent other accounts can write, such as /tmp."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.accounts import STRANGER, needs_root, open_folder, started

import claims
from stack import StackError
from trainwarden_exporter.processes.procfs import Identity, read_process

pytestmark = needs_root


@pytest.fixture
def folder() -> Iterator[Path]:
    """The folder of a stack that has not run yet."""
    with open_folder() as parent:
        parent.chmod(0o1777)
        yield parent / "stack"


def hold(lock: Path, named: int, owner: int = STRANGER) -> int:
    """Locks a file of `owner` that names a process; returns its descriptor."""
    process = read_process(named)
    assert process is not None
    lock.write_text(f"{named} {process.identity.start_ticks}\n")
    os.chown(lock, owner, owner)
    descriptor = os.open(lock, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def test_a_lock_of_another_account_names_no_process_of_this_one(folder: Path) -> None:
    with started(["sleep", "600"], 0) as victim:
        descriptor = hold(claims.lock_of(folder), victim.pid)
        with pytest.raises(StackError, match="not of the account that owns the file"):
            claims.owner(claims.lock_of(folder))
        os.close(descriptor)


def test_root_can_end_the_stack_of_another_account(folder: Path) -> None:
    with started(["sleep", "600"]) as child:
        descriptor = hold(claims.lock_of(folder), child.pid)
        owner = claims.owner(claims.lock_of(folder))
        assert owner is not None
        assert owner.pid == child.pid
        os.close(descriptor)


def test_a_lock_of_another_account_is_not_used(folder: Path) -> None:
    lock = claims.lock_of(folder)
    lock.touch()
    os.chown(lock, STRANGER, STRANGER)
    with pytest.raises(StackError, match="not a file of this account"), claims.claimed(folder):
        pass
    assert lock.read_text() == ""


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_neither_a_link_nor_a_pipe_is_a_lock(folder: Path, kind: str) -> None:
    lock, precious = claims.lock_of(folder), folder.parent / "precious"
    precious.write_text("precious")
    lock.symlink_to(precious) if kind == "link" else os.mkfifo(lock)
    with pytest.raises(StackError, match=r"cannot open|not a file"), claims.claimed(folder):
        pass
    assert precious.read_text() == "precious"
    if kind == "link":
        with pytest.raises(StackError, match="cannot open"):
            claims.owner(lock)


@pytest.mark.parametrize("is_locked", [False, True])
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_in_the_place_of_a_lock_is_named(
    folder: Path, kind: str, is_locked: bool
) -> None:
    lock = claims.lock_of(folder)
    lock.mkdir() if kind == "folder" else os.mkfifo(lock)
    os.chown(lock, STRANGER, STRANGER)
    descriptor = os.open(lock, os.O_RDONLY | os.O_NONBLOCK)
    if is_locked:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(StackError, match=f"{lock} is not a file: remove it"):
        claims.owner(lock)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    os.close(descriptor)


def test_the_files_beside_the_folder_are_of_this_account_alone(folder: Path) -> None:
    lock = claims.lock_of(folder)
    lock.touch()
    lock.chmod(0o666)
    own = read_process(os.getpid())
    assert own is not None
    with claims.claimed(folder):
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600
        assert claims.owner(lock) == Identity(*own.identity)
