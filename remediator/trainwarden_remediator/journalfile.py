"""The journal as a file: its lock, and what makes it safe to rely on."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journalschema import FROM_VERSION_1, SCHEMA

VERSION = 2

HEADER_BYTES = 512
"""No database of SQLite is shorter."""


class JournalFile:
    """An SQLite file, locked to one remediator.

    Raises JournalError where it cannot be relied on: one that is empty or damaged has lost what
    budgets are counted from, and is never begun anew by itself.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}") from error
        try:
            self._take_lock()
            self.connection = self._open()
            self.name: str = self.read("SELECT name FROM journal")[0]["name"]
            """Unlike that of any other journal."""
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        with self._guard:
            self.connection.close()
            os.close(self._lock)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is written inside is on the disk afterwards, or nothing of it is."""
        with self._guard:
            db, ending = self.connection, False
            try:
                self._let_go()
                db.execute("BEGIN IMMEDIATE")
                yield db
                ending = True
                db.execute("COMMIT")
            except sqlite3.Error as error:
                raise JournalError(f"{self._path}: {error}") from error
            except MemoryError as error:
                if ending and not db.in_transaction:
                    raise  # it may be on the disk by now
                raise JournalError(f"{self._path}: no memory") from error
            finally:
                # Also where COMMIT itself failed: a full disk leaves the transaction open.
                with suppress(sqlite3.Error, MemoryError):
                    self._let_go()

    def read(self, query: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        with self._guard:
            try:
                self._let_go()
                return self.connection.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise JournalError(f"{self._path}: {error}") from error
            except MemoryError as error:
                raise JournalError(f"{self._path}: no memory") from error

    def _let_go(self) -> None:
        """Undo a transaction that was left open, as far as that can be: nobody may see of it."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(f"{self._path}: another remediator is using it") from error

    def _open(self) -> sqlite3.Connection:
        try:
            self._begin_if_new()
        except OSError as error:
            raise JournalError(f"{self._path}: {error.strerror}") from error
        connection = connect(self._path)
        with ExitStack() as unless_sound:
            unless_sound.callback(connection.close)
            self._make_sound(connection)
            unless_sound.pop_all()
        return connection

    def _begin_if_new(self) -> None:
        """Make the file whole under another name.

        So what is there under its own is never one of which only the beginning was written.
        """
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            pass
        else:
            if size == 0:
                raise JournalError(f"{self._path}: empty: its content is lost; remove it to begin")
            if size < HEADER_BYTES:  # to SQLite it would be a new one
                raise JournalError(f"{self._path}: torn: its content is lost; remove it to begin")
            return
        if Path(f"{self._path}-wal").exists():
            raise JournalError(f"{self._path}: gone, and {self._path.name}-wal is still there")
        fresh = Path(f"{self._path}.new")
        fresh.unlink(missing_ok=True)
        connection = connect(fresh, mode="rwc")
        try:
            connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT")
        except sqlite3.Error as error:
            raise JournalError(f"{self._path}: {error}") from error
        finally:
            connection.close()
        fresh.rename(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _make_sound(self, connection: sqlite3.Connection) -> None:
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version == 1:
                connection.executescript(f"BEGIN; {FROM_VERSION_1} PRAGMA user_version = 2; COMMIT")
            elif version == 0:
                raise JournalError(f"{self._path}: a database, and no journal")
            elif version != VERSION:
                raise JournalError(f"{self._path}: written by another version ({version})")
            if (found := connection.execute("PRAGMA quick_check").fetchone()[0]) != "ok":
                raise JournalError(f"{self._path}: damaged: {' '.join(found.split())}")
        except sqlite3.Error as error:
            raise JournalError(f"{self._path}: {error}") from error


def connect(path: Path, *, mode: Literal["ro", "rw", "rwc"] = "rw") -> sqlite3.Connection:
    """A connection in which what is committed is on the disk. Raises JournalError."""
    with ExitStack() as unless_good:
        try:
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=5,
            )
            unless_good.callback(connection.close)
            connection.row_factory = sqlite3.Row
            if mode == "rw":
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA foreign_keys = ON")
            if mode != "ro":
                # FULL, not NORMAL: an intent lost with the power would be an act never announced.
                connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            raise JournalError(f"{path}: {error}") from error
        unless_good.pop_all()
    return connection


def is_begun(path: Path) -> bool:
    """Whether there is a journal at `path`; raises JournalError when that cannot be told."""
    if not path.exists():
        return False
    connection = connect(path, mode="ro")
    try:
        return bool(connection.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error as error:
        raise JournalError(f"{path}: {error}") from error
    finally:
        connection.close()
