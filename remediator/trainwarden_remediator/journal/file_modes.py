"""The permissions of the journal's files.

Any account that can open one of them, also for reading, can lock it, and with it the journal.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from trainwarden_remediator.exceptions import JournalError

MODE = 0o600
SUFFIXES = ("", "-wal", "-shm", ".lock")
"""Of the files of a journal. SQLite creates `-wal` and `-shm` with the mode of the database."""
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def create_private(path: Path) -> None:
    """Creates an empty file for this account only. Raises OSError if it exists, also as a link."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, MODE))


def open_private(path: Path) -> int:
    """Returns a descriptor of a file for this account only, created if missing. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, MODE)
    try:
        _narrow(path, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def narrow_files(path: Path) -> None:
    """Closes the files of the journal at `path` to other accounts, before SQLite opens them.

    A shared index (`-shm`) that was open to others is removed, because an account may have locked
    it; SQLite builds it again from the log. Raises JournalError if that is not permitted.
    """
    for file in _existing(path):
        try:
            descriptor = os.open(file, os.O_RDONLY | _FLAGS)
            try:
                was_wide = _narrow(file, descriptor)
            finally:
                os.close(descriptor)
            if was_wide and file.name.endswith("-shm"):
                file.unlink()
        except OSError as error:
            raise JournalError(f"{file}: {error.strerror}") from error


def mode_problems(path: Path) -> list[str]:
    """Returns which files of the journal at `path` another account can lock, read or change."""
    found = []
    for file in _existing(path):
        status = file.stat()
        if _is_wide(status.st_mode):
            found.append(f"{file}: accessible to other accounts: mode {status.st_mode & 0o777:04o}")
        elif status.st_uid not in (0, os.geteuid()):
            found.append(f"{file}: belongs to uid {status.st_uid}, which can change it")
    return found


def _existing(path: Path) -> Iterator[Path]:
    files = (Path(f"{path.resolve()}{suffix}") for suffix in SUFFIXES)
    return (file for file in files if file.is_file())


def _narrow(file: Path, descriptor: int) -> bool:
    """Returns whether the file was open to other accounts. Raises JournalError if it stays so."""
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode) or not _is_wide(mode):
        return False
    try:
        os.fchmod(descriptor, MODE)
    except PermissionError as error:
        raise JournalError(
            f"{file}: accessible to other accounts (mode {mode & 0o777:04o}), which can lock it,"
            " and its owner is another account"
        ) from error
    return True


def _is_wide(mode: int) -> bool:
    return bool(mode & 0o077)
