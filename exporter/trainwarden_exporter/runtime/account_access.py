"""Limits reads to what another account may read, by owners, modes and ACLs.

A program with privileges must not read for an account that announces a run what that account cannot
read itself. The kernel decides that only for a thread that takes over the account, for which the
exporter lacks the capability. Sources: path_resolution(7), acl(5).
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, reduce
from operator import or_

READ, SEARCH = 4, 1

_USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 0x02, 0x04, 0x08, 0x10, 0x20
_GROUPS_SECONDS = 60.0

_reader: ContextVar[int | None] = ContextVar("reader", default=None)


@contextmanager
def reading_for(uid: int | None) -> Iterator[None]:
    """Within the context, `safe_open` opens only what account `uid` may read; None: no limit."""
    token = _reader.set(uid)
    try:
        yield
    finally:
        _reader.reset(token)


def is_limited() -> bool:
    """Whether reads are limited to those of an account."""
    return _reader.get() is not None


def check_access(handle: int, wanted: int, path: str) -> None:
    """Raises PermissionError if the account of the context lacks READ or SEARCH on `handle`."""
    uid = _reader.get()
    if uid is None:
        return
    status = os.fstat(handle)
    if wanted == SEARCH and not stat.S_ISDIR(status.st_mode):
        return  # opening what is below it fails
    # the modes of /proc grant what the kernel refuses by other rules
    if status.st_dev == _proc_device() or not granted(handle, status, uid) & wanted:
        raise PermissionError(errno.EACCES, f"account {uid}, which named it, has no access", path)


def granted(handle: int, status: os.stat_result, uid: int) -> int:
    """Returns what `uid` may do with the file of `handle`: the last digit of a mode."""
    if uid == status.st_uid:
        return status.st_mode >> 6 & 7
    groups = _groups(uid, int(time.monotonic() / _GROUPS_SECONDS))
    if acl := _read_acl(handle):
        return _granted_by_acl(acl, uid, groups, status.st_gid)
    return status.st_mode >> (3 if status.st_gid in groups else 0) & 7


def _granted_by_acl(
    entries: tuple[tuple[int, int, int], ...], uid: int, groups: frozenset[int], group: int
) -> int:
    mask = next((bits for tag, bits, _ in entries if tag == _MASK), 7)
    for tag, bits, number in entries:
        if tag == _USER and number == uid:
            return bits & mask
    by_group = [
        bits & mask
        for tag, bits, number in entries
        if (tag == _GROUP_OBJ and group in groups) or (tag == _GROUP and number in groups)
    ]
    if by_group:
        return reduce(or_, by_group)  # one bit is asked for, and one entry is enough
    return next((bits for tag, bits, _ in entries if tag == _OTHER), 0)


def _read_acl(handle: int) -> tuple[tuple[int, int, int], ...]:
    """Returns tag, permissions and id of each entry; empty without an ACL."""
    try:
        content = os.getxattr(f"/proc/self/fd/{handle}", "system.posix_acl_access")
    except OSError:  # it has none, or the file system knows none
        return ()
    return tuple(struct.iter_unpack("<HHI", content[4:]))


@lru_cache(maxsize=64)
def _groups(uid: int, _period: int) -> frozenset[int]:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return frozenset()
    return frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid))


@lru_cache(maxsize=1)
def _proc_device() -> int:
    return os.stat("/proc").st_dev  # noqa: PTH116 - beside the other status calls
