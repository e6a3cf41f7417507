"""Locks the database of the journal, and detects that its files were removed, cut or replaced.

SQLite keeps its files open and notices none of this: its transactions would go on succeeding, in a
file without a name.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from trainwarden_remediator.exceptions import JournalError

log = logging.getLogger(__name__)

_LOCKED_BYTE = 1 << 62
"""Far beyond the bytes that SQLite locks (0x40000000 and the 511 after it)."""
_FLOCK = "hhqqi"
"""struct flock of fcntl(2)."""
_DATABASE_HEADER = b"SQLite format 3\0"
"""See https://www.sqlite.org/fileformat2.html."""


class _FileState(NamedTuple):
    device: int
    inode: int
    size: int


class FileGuard:
    """Holds a lock on the database at `path`, whatever name it was opened by.

    `verify` raises JournalError unless the content is whole. Raises JournalError if another
    remediator has locked the file, OSError if it cannot be opened.
    """

    def __init__(self, path: Path, verify: Callable[[], None]) -> None:
        self._path = path
        self._verify = verify
        self._lost = ""
        self._states: dict[str, _FileState] = {}
        self._fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        if not _lock(self._fd):
            os.close(self._fd)
            raise JournalError(f"{path}: another remediator is using it")

    def close(self) -> None:
        """Releases the lock; only after the connections of this process are closed.

        Closing any descriptor of a file drops the locks that SQLite holds on it.
        """
        os.close(self._fd)

    def remember(self) -> None:
        """Records the files as they are, after a transaction of this process."""
        for suffix in ("", "-wal"):
            if (state := self._read_state(suffix)) is not None:
                self._states[suffix] = state

    def check(self) -> None:
        """Raises JournalError, from then on, if a file is not what this process has written."""
        if not self._lost:
            self._lost = self._problem()
        if self._lost:
            raise JournalError(f"{self._path}: {self._lost}: actions may be lost; none is started")

    def verify(self) -> None:
        """Reads the whole content; blocks. Raises as `check`."""
        self.check()
        try:
            self._verify()
        except JournalError as error:
            self._lost = str(error).removeprefix(f"{self._path}: ")
            self.check()

    def _problem(self) -> str:
        cut = False
        for suffix, known in self._states.items():
            name = f"{self._path.name}{suffix}"
            state = self._read_state(suffix)
            if state is None:
                return f"{name} was removed"
            if (state.device, state.inode) != (known.device, known.inode):
                return f"{name} was replaced"
            cut = cut or state.size < known.size
        try:
            header = os.pread(self._fd, len(_DATABASE_HEADER), 0)
        except OSError as error:
            # Perhaps for a moment only, as on a file server: no transaction is known to be lost.
            raise JournalError(f"{self._path}: {error.strerror}") from error
        if header != _DATABASE_HEADER:
            return f"{self._path.name} was overwritten"
        if cut:
            # Also the effect of a VACUUM or of a checkpoint with another program: harmless.
            try:
                self._verify()
            except JournalError as error:
                return f"cut off: {str(error).removeprefix(f'{self._path}: ')}"
            self.remember()
        return ""

    def _read_state(self, suffix: str) -> _FileState | None:
        try:
            status = os.stat(f"{self._path}{suffix}", follow_symlinks=False)  # noqa: PTH116 - before every transaction
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return _FileState(status.st_dev, status.st_ino, status.st_size)


def _lock(descriptor: int) -> bool:
    """Locks a file until `descriptor` is closed; returns False if another remediator has."""
    # A lock of the open file: closing another descriptor of it in this process keeps it.
    lock = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _LOCKED_BYTE, 1, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
    except BlockingIOError:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, lock)
        # A remediator locks for writing; an account that once could read the file, for reading.
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_WRLCK)
    except OSError as error:  # a file system without locks
        log.warning("the journal cannot be locked", extra={"error": str(error)})
    return True


class Fingerprint:
    """The name and the last action of a journal, kept in its lock file.

    After the journal was lost, it prevents a new one from starting with a fresh budget.
    """

    def __init__(self, lock: int) -> None:
        self._lock = lock
        name, _, number = os.pread(lock, 200, 0).decode("ascii", "replace").strip().partition(" ")
        self.name = name
        """The name of the last journal; "" without one."""
        self.last_action = int(number) if number.isdecimal() else 0

    def write(self, connection: sqlite3.Connection) -> None:
        """Records the journal of `connection`. Raises OSError or sqlite3.Error."""
        name, last_action = _read(connection)
        if (name, last_action) == (self.name, self.last_action):
            return
        # Of the same length at each write: a crash leaves the one or the other.
        os.pwrite(self._lock, f"{name} {last_action:020d}\n".encode(), 0)
        self.name, self.last_action = name, last_action

    def problem(self, connection: sqlite3.Connection) -> str:
        """Returns how `connection` differs from the last journal, or ""."""
        name, last_action = _read(connection)
        if self.name and name != self.name:
            return "not the journal that was used before"
        if last_action < self.last_action:
            return f"its last actions are lost: it ends at {last_action} of {self.last_action}"
        return ""


def _read(connection: sqlite3.Connection) -> tuple[str, int]:
    (row,) = connection.execute(
        "SELECT name, coalesce((SELECT max(id) FROM action), 0) FROM journal"
    )
    return str(row[0]), int(row[1])
