"""Opens files in folders that other accounts can write to."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from trainwarden_exporter.runtime.account_access import READ, SEARCH, check_access, is_limited

_MAX_LINKS = 40  # MAXSYMLINKS of Linux
_HANDLE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class ForeignLinkError(OSError):
    """A link of another account leads to a file that is not of this account."""


def open_regular(path: str | Path) -> int | None:
    """Opens the regular file at `path` for reading, by the rule of `open_handle`.

    Returns None for anything else: opening a pipe can block, opening a device can trigger actions.
    Raises OSError.
    """
    handle = open_handle(path)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        check_access(handle, READ, str(path))
        # O_NONBLOCK: another account may have a lease on the file (fcntl(2), F_SETLEASE)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{handle}", flags)
    finally:
        os.close(handle)


def open_handle(path: str | Path) -> int:
    """Returns a handle (O_PATH) of what is at `path`; the caller closes it.

    A program with privileges must not read for another account what that account cannot read: a
    link is followed only if it belongs to root, to the account of this program, or to the owner
    of the file that it leads to. Raises OSError: ForeignLinkError (ELOOP) for any other link. In
    the context of `reading_for`, instead of that rule, PermissionError for a path that the account
    cannot follow.
    """
    with ExitStack() as stack:
        current = _opened(stack, "/")
        remaining = list(Path(os.path.abspath(path)).parts[1:])[::-1]  # noqa: PTH100 - keeps links
        owners: set[int] = set()
        links = 0
        while remaining:
            name = remaining.pop()
            check_access(current, SEARCH, str(path))
            handle = _opened(stack, name, current)
            status = os.fstat(handle)
            if not stat.S_ISLNK(status.st_mode):
                current = handle
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            owners.add(status.st_uid)
            target = Path(os.readlink("", dir_fd=handle))
            if target.is_absolute():
                current = _opened(stack, "/")
            remaining += [part for part in target.parts if part != "/"][::-1]
        foreign = owners - {0, os.geteuid(), os.fstat(current).st_uid}
        if foreign and not is_limited():
            raise ForeignLinkError(errno.ELOOP, "link of another account", str(path))
        return os.dup(current)


def file_status(path: str | Path) -> os.stat_result:
    """Returns the status of `path` or its target, by the rule of `reading_for`. Raises OSError."""
    if not is_limited():
        return os.stat(path)  # noqa: PTH116 - a Path for each of many files costs
    handle = open_handle(path)
    try:
        return os.fstat(handle)
    finally:
        os.close(handle)


@contextmanager
def scan_folder(path: str | Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Yields the entries of a folder, by the rule of `reading_for`. Raises OSError.

    Of an entry, use the name and the kind alone, and within the context.
    """
    if not is_limited():
        with os.scandir(path) as entries:
            yield entries
        return
    handle = open_handle(path)
    try:
        check_access(handle, READ, str(path))
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        folder = os.open(f"/proc/self/fd/{handle}", flags)
    finally:
        os.close(handle)
    try:
        with os.scandir(folder) as entries:
            yield entries
    finally:
        os.close(folder)


def _opened(stack: ExitStack, name: str, folder: int | None = None) -> int:
    handle = os.open(name, _HANDLE, dir_fd=folder)
    stack.callback(os.close, handle)
    return handle
