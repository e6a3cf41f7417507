"""Another account locks the files of the journal, or finds them readable."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.hostile.accounts import STRANGER, needs_root, open_folder
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import make_alert

from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.file_modes import mode_problems
from trainwarden_remediator.journal.journal import Journal

NAMES = ("journal.db", "journal.db-wal", "journal.db-shm", "journal.db.lock")


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def modes(folder: Path) -> dict[str, int]:
    return {
        name: stat.S_IMODE((folder / name).stat().st_mode)
        for name in NAMES
        if (folder / name).exists()
    }


@contextmanager
def read_locked(path: Path) -> Iterator[bool]:
    """Another account tries to lock all bytes of `path` for reading; yields whether it could.

    A fork: another account cannot run the interpreter of the tests.
    """
    read, write = os.pipe()
    if not (attacker := os.fork()):
        try:
            os.setgroups([])
            os.setgid(STRANGER)
            os.setuid(STRANGER)
            lock = struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_SETLK, lock)
            os.write(write, b"locked")
            signal.pause()
        finally:
            os._exit(1)
    os.close(write)
    try:
        yield os.read(read, 6) == b"locked"
    finally:
        os.close(read)
        os.kill(attacker, signal.SIGKILL)
        os.waitpid(attacker, 0)


def test_the_files_are_closed_to_other_accounts_from_the_first_byte(
    folder: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    rename = Path.rename

    def recorded(self: Path, target: Path) -> Path:
        seen.append(stat.S_IMODE(self.stat().st_mode))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", recorded)
    before = os.umask(0)
    try:
        with closing(Journal(folder / "journal.db", clock=clock)) as journal:
            journal.record_alerts([make_alert()])
            assert modes(folder) == dict.fromkeys(NAMES, 0o600)
    finally:
        os.umask(before)
    assert seen == [0o600]


def test_files_of_an_earlier_version_are_narrowed(folder: Path, clock: FakeClock) -> None:
    path = folder / "journal.db"
    Journal(path, clock=clock).close()
    for name in NAMES:
        (folder / name).touch()
        (folder / name).chmod(0o644)
    assert [problem.split(":")[0] for problem in mode_problems(path)] == [
        str(folder / name) for name in NAMES
    ]
    with closing(Journal(path, clock=clock)) as journal:
        journal.record_alerts([make_alert()])
        assert modes(folder) == dict.fromkeys(NAMES, 0o600)
        assert mode_problems(path) == []


@needs_root
def test_a_file_that_cannot_be_narrowed_is_refused(
    folder: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "journal.db"
    Journal(path, clock=clock).close()
    path.chmod(0o644)

    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refused)
    with pytest.raises(JournalError, match="accessible to other accounts"):
        Journal(path, clock=clock)


@needs_root
def test_a_file_of_another_account_is_reported(folder: Path, clock: FakeClock) -> None:
    path = folder / "journal.db"
    Journal(path, clock=clock).close()
    os.chown(path, STRANGER, STRANGER)
    (problem,) = mode_problems(path)
    assert f"belongs to uid {STRANGER}" in problem


@needs_root
@pytest.mark.parametrize("name", NAMES)
def test_another_account_cannot_lock_a_file_of_the_journal(
    folder: Path, clock: FakeClock, name: str
) -> None:
    with closing(Journal(folder / "journal.db", clock=clock)) as journal:
        journal.record_alerts([make_alert()])
        with read_locked(folder / name) as locked:
            assert not locked
            journal.record_alerts([make_alert()])


@needs_root
@pytest.mark.parametrize("name", NAMES)
def test_a_lock_from_before_the_files_were_narrowed_does_not_stop_the_journal(
    folder: Path, clock: FakeClock, name: str
) -> None:
    path = folder / "journal.db"
    with closing(Journal(path, clock=clock)) as journal:
        journal.record_alerts([make_alert()])
        for file in folder.iterdir():
            file.chmod(0o644)
        # A kill leaves all files; a copy stands for it.
        left = {file.name: file.read_bytes() for file in folder.iterdir()}
    for file_name, content in left.items():
        (folder / file_name).write_bytes(content)
        (folder / file_name).chmod(0o644)
    with read_locked(folder / name) as locked:
        assert locked
        with closing(Journal(path, clock=clock)) as journal:
            journal.record_event("checked")
            assert journal.count_open() == 1
