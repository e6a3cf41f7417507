"""Opens the log of a worker, in a folder that the account of the worker may control."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from trainwarden_exporter.runtime.safe_open import open_handle

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC


def open_worker_log(path: Path, uid: int, gid: int) -> int:
    """Returns a descriptor that appends to the log at `path`.

    Creates missing folders, and a missing log for the account `uid` with the group `gid`. Follows
    links by the rule of `open_handle`, and never to a file that does not exist: the account of a
    worker must not choose a file that root writes. Raises OSError, also for anything but a regular
    file: a FIFO without a reader would block.
    """
    folder = _open_folder(path.parent)
    try:
        flags = _APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(path.name, flags, 0o666, dir_fd=folder)
    except FileExistsError:
        return _open_existing(path, uid)
    finally:
        os.close(folder)
    if uid != os.geteuid():
        os.fchown(descriptor, uid, gid)
    return descriptor


def _open_existing(path: Path, uid: int) -> int:
    handle = open_handle(path)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        # A hard link, which an account can make to a file of another one (fs.protected_hardlinks).
        if status.st_nlink > 1 and status.st_uid != uid:
            raise OSError(errno.EMLINK, "hard link to a file of another account", str(path))
        return os.open(f"/proc/self/fd/{handle}", _APPEND)
    finally:
        os.close(handle)


def _open_folder(path: Path) -> int:
    try:
        return open_handle(path)
    except FileNotFoundError:
        above = _open_folder(path.parent)
    try:
        os.mkdir(path.name, dir_fd=above)
    except FileExistsError:  # created at the same time, or a link to a folder that is missing
        pass
    finally:
        os.close(above)
    return open_handle(path)
