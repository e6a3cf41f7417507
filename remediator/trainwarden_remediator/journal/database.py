"""The SQLite file of the journal: its lock, creation, migration and transactions."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Literal

from trainwarden_exporter.runtime.bounded_calls import bounded_call
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.file_guard import FileGuard, Fingerprint
from trainwarden_remediator.journal.file_modes import create_private, narrow_files, open_private
from trainwarden_remediator.journal.schema import MIGRATIONS, SCHEMA

VERSION = 7

OPEN_SECONDS = 10.0
"""How long the start waits for the disk of the journal."""

HEADER_BYTES = 512
"""The length of the shortest SQLite database."""


class JournalFile:
    """An SQLite file, locked to one remediator.

    Raises JournalError if the file is empty or damaged: it has lost the actions from which budgets
    are counted, and is never recreated automatically.
    """

    def __init__(self, path: Path) -> None:
        self._guard = threading.Lock()
        try:
            # Resolved: a link to a journal must lead to the same lock.
            self._path = path = bounded_call(path, path.resolve, seconds=OPEN_SECONDS)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = open_private(Path(f"{path}.lock"))
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}") from error
        try:
            self._take_lock()
            narrow_files(path)
            self._fingerprint = Fingerprint(self._lock)
            self.connection = self._open()
        except BaseException:
            os.close(self._lock)
            raise
        self.last_write_failed = False

    @property
    def name(self) -> str:
        """The name of this journal, which no other has."""
        return self._name

    def close(self) -> None:
        with self._guard:
            self.connection.close()
            self._files.close()
            os.close(self._lock)

    def verify(self) -> None:
        """Reads the whole file; blocks. Raises JournalError, from then on, if it is damaged."""
        self._files.verify()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction: on exit, all of its writes are on disk, or none.

        Raises JournalError.
        """
        with self._guard:
            db, ending = self.connection, False
            try:
                with sqlite_errors(self._path):
                    self._files.check()
                    self._rollback()
                    db.execute("BEGIN IMMEDIATE")
                    yield db
                    ending = True
                    db.execute("COMMIT")
                    self._committed(db)
            except JournalError:
                self.last_write_failed = True
                raise
            except MemoryError as error:
                if ending and not db.in_transaction:
                    raise  # the commit may have succeeded
                raise JournalError(f"{self._path}: out of memory") from error
            finally:
                # Also if COMMIT itself failed: a full disk leaves the transaction open.
                with suppress(sqlite3.Error, MemoryError):
                    self._rollback()

    def read(self, query: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        with self._guard, sqlite_errors(self._path):
            try:
                self._files.check()
                self._rollback()
                return self.connection.execute(query, values).fetchall()
            except MemoryError as error:
                raise JournalError(f"{self._path}: out of memory") from error

    def _committed(self, db: sqlite3.Connection) -> None:
        self.last_write_failed = False
        self._files.remember()
        with suppress(OSError, sqlite3.Error):  # the next commit records it
            self._fingerprint.write(db)

    def _rollback(self) -> None:
        """Rolls back a transaction that was left open, so that no reader sees its writes."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(f"{self._path}: another remediator is using it") from error

    def _open(self) -> sqlite3.Connection:
        try:
            self._create_if_missing()
            self._files = FileGuard(self._path, self._verify_content)
        except OSError as error:
            raise JournalError(f"{self._path}: {error.strerror}") from error
        with ExitStack() as unless_sound:
            unless_sound.callback(self._files.close)
            connection = connect(self._path)
            unless_sound.callback(connection.close)
            self._migrate_and_check(connection)
            self._check_fingerprint(connection)
            self._name = str(connection.execute("SELECT name FROM journal").fetchone()[0])
            self._files.remember()
            with suppress(OSError):
                self._fingerprint.write(connection)
            unless_sound.pop_all()
        return connection

    def _verify_content(self) -> None:
        """Raises JournalError unless a new connection finds the file undamaged and complete."""
        with open_database(self._path, mode="ro") as connection:
            self._quick_check(connection)
            self._check_fingerprint(connection)

    def _check_fingerprint(self, connection: sqlite3.Connection) -> None:
        if problem := self._fingerprint.problem(connection):
            raise JournalError(
                f"{self._path}: {problem}; restore it, or remove {self._path.name}.lock to use it"
            )

    def _create_if_missing(self) -> None:
        """Creates the file completely under another name, then renames it.

        A crash therefore never leaves a partly written journal.
        """
        lost = f"its content is lost; remove it and {self._path.name}.lock to start a new one"
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            pass
        else:
            if size == 0:
                raise JournalError(f"{self._path}: empty: {lost}")
            if size < HEADER_BYTES:  # SQLite would treat it as a new database
                raise JournalError(f"{self._path}: truncated: {lost}")
            return
        if Path(f"{self._path}-wal").exists():
            raise JournalError(f"{self._path}: missing, but {self._path.name}-wal exists")
        if self._fingerprint.name:
            raise JournalError(
                f"{self._path}: missing: its content is lost; restore it, or remove"
                f" {self._path.name}.lock to start a new one"
            )
        fresh = Path(f"{self._path}.new")
        fresh.unlink(missing_ok=True)
        create_private(fresh)
        with open_database(fresh, mode="rwc") as connection:
            connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT")
        fresh.rename(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _migrate_and_check(self, connection: sqlite3.Connection) -> None:
        with sqlite_errors(self._path):
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version in MIGRATIONS:
                connection.executescript(
                    f"BEGIN; {MIGRATIONS[version]} PRAGMA user_version = {VERSION}; COMMIT"
                )
            elif version == 0:
                raise JournalError(f"{self._path}: a database, but not a journal")
            elif version != VERSION:
                raise JournalError(f"{self._path}: written by another version ({version})")
            self._quick_check(connection)

    def _quick_check(self, connection: sqlite3.Connection) -> None:
        if (found := connection.execute("PRAGMA quick_check").fetchone()[0]) != "ok":
            raise JournalError(f"{self._path}: damaged: {' '.join(found.split())}")


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Raises an error of SQLite in its body as a JournalError about `path`."""
    try:
        yield
    except sqlite3.Error as error:
        raise JournalError(f"{path}: {error}") from error


def connect(path: Path, *, mode: Literal["ro", "rw", "rwc"] = "rw") -> sqlite3.Connection:
    """Returns a connection whose commits are durable. Raises JournalError."""
    with sqlite_errors(path), ExitStack() as unless_good:
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
            # FULL, not NORMAL: a power failure must not lose the intent of an action.
            connection.execute("PRAGMA synchronous = FULL")
        unless_good.pop_all()
    return connection


@contextmanager
def open_database(
    path: Path, *, mode: Literal["ro", "rw", "rwc"] = "rw"
) -> Iterator[sqlite3.Connection]:
    """A connection that is closed at the end, which rolls back an uncommitted transaction.

    Raises JournalError, also for errors of SQLite in its body.
    """
    with sqlite_errors(path), closing(connect(path, mode=mode)) as connection:
        yield connection


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Raises JournalError unless the journal at `path` has the current version."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise JournalError(
            f"{path}: written by another version ({version}); start the remediator once"
        )


@contextmanager
def offline_transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """A transaction in the journal at `path`, which a running remediator may have open.

    Raises JournalError.
    """
    with open_database(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        check_version(connection, path)
        yield connection
        connection.execute("COMMIT")


def journal_exists(path: Path) -> bool:
    """Whether there is a journal at `path`. Raises JournalError if the file cannot be read."""
    if not path.exists():
        return False
    with open_database(path, mode="ro") as connection:
        return bool(connection.execute("PRAGMA user_version").fetchone()[0])
