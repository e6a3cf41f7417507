"""Opens files in folders that other accounts can write to."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack
from pathlib import Path

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
        # O_NONBLOCK: another account may have a lease on the file (fcntl(2), F_SETLEASE)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{handle}", flags)
    finally:
        os.close(handle)


def open_handle(path: str | Path) -> int:
    """Returns a handle (O_PATH) of what is at `path`; the caller closes it.

    A program with privileges must not read for another account what that account cannot read: a
    link is followed only if it belongs to root, to the account of this program, or to the owner
    of the file that it leads to. Raises OSError: ForeignLinkError (ELOOP) for any other link.
    """
    with ExitStack() as stack:
        current = _opened(stack, "/")
        remaining = list(Path(os.path.abspath(path)).parts[1:])[::-1]  # noqa: PTH100 - keeps links
        owners: set[int] = set()
        links = 0
        while remaining:
            name = remaining.pop()
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
        if foreign:
            raise ForeignLinkError(errno.ELOOP, "link of another account", str(path))
        return os.dup(current)


def _opened(stack: ExitStack, name: str, folder: int | None = None) -> int:
    handle = os.open(name, _HANDLE, dir_fd=folder)
    stack.callback(os.close, handle)
    return handle
