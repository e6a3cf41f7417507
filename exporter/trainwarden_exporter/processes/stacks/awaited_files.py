"""Finds the files for which a thread waits, and whether a process outside of the run has an end."""

from __future__ import annotations

import os
import platform
import re
import struct
from collections.abc import Iterable
from pathlib import Path

from trainwarden_exporter.processes.procfs import PROC, read_text
from trainwarden_exporter.processes.stacks.far_ends import (
    UNKNOWN,
    find_pipe_ends,
    find_servers,
    leads_outside,
)
from trainwarden_exporter.processes.stacks.kernel_state import parse_file_number
from trainwarden_exporter.processes.stacks.model import FarEnd
from trainwarden_exporter.processes.stacks.open_files import OpenFiles, read_link

_POLL = {"x86_64": ("7", "271"), "aarch64": ("73",)}.get(platform.machine(), ())
_SELECT = {"x86_64": ("23", "270"), "aarch64": ("72",)}.get(platform.machine(), ())
_EPOLL = {"x86_64": ("232", "281", "441"), "aarch64": ("22", "441")}.get(platform.machine(), ())
"""The numbers of these system calls and of their variants, poll(2), select(2), epoll_wait(2)."""

_MOST_FILES = 4096

MAX_FILES = 16
"""Files of one wait whose other ends are searched for."""


def find_awaited_files(pid: int, tid: int, root: Path = PROC) -> tuple[int, ...] | None:
    """Returns the file descriptors for which a thread waits; None if they are not known."""
    call = read_text(f"{root}/{pid}/task/{tid}/syscall") or ""
    number, *arguments = call.split() or [""]
    if len(arguments) < 4:  # noqa: PLR2004 - it runs, or its call is not readable
        return None
    first, *others = (int(one, 16) for one in arguments[:4])
    memory = f"{root}/{pid}/mem"
    if number in _POLL:
        data = _read(memory, first, 8 * others[0])  # struct pollfd in poll.h
        return None if data is None else tuple(one[0] for one in struct.iter_unpack("=ihh", data))
    if number in _SELECT:
        return _read_sets(memory, first, others)
    if number in _EPOLL:
        listed = read_text(f"{root}/{pid}/fdinfo/{first}")
        found = re.findall(r"^tfd:\s*(\d+)", listed or "", re.MULTILINE)
        return None if listed is None else tuple(map(int, found))
    file_number = parse_file_number(call)
    return None if file_number is None else (file_number,)


def _read_sets(memory: str, count: int, addresses: Iterable[int]) -> tuple[int, ...] | None:
    """Returns the files in sets of select(2), which have a bit for each of `count` files."""
    if count > 64 * _MOST_FILES:
        return None
    words = -(-count // 64)
    sets = [_read(memory, one, 8 * words) for one in addresses if one]
    known = [int.from_bytes(one, "little") for one in sets if one is not None]
    if len(known) < len(sets):
        return None
    return tuple(one for one in range(count) if any(bits >> one & 1 for bits in known))


def find_ends(pid: int, file: int, files: OpenFiles) -> tuple[FarEnd, ...]:
    """Returns the processes that may end a wait for a file.

    Empty for a pipe, or another file, that only processes of the run have open.
    """
    link = read_link(f"{files.root}/{pid}/fd/{file}")
    if link.startswith("pipe:"):
        return find_pipe_ends(pid, file, files)
    if link.startswith("socket:"):
        # without an end it listens, or takes datagrams of anybody
        return find_servers(pid, file, files) or (UNKNOWN,)
    return () if link == "anon_inode:[eventfd]" else (UNKNOWN,)


def is_of_the_run(pid: int, tid: int, files: OpenFiles) -> bool:
    """Whether only processes of the run may end the wait of a thread for files.

    Not known, so False, of a thread that waits for more than a few.
    """
    awaited = find_awaited_files(pid, tid, files.root)
    if awaited is None or len(awaited) > MAX_FILES:
        return False
    return all(
        end.identity in files.inside for one in awaited for end in find_ends(pid, one, files)
    )


def asks_outside(pid: int, tid: int, files: OpenFiles) -> bool:
    """Whether a thread waits at a connection that it has to a process outside of the run."""
    return leads_outside(pid, find_awaited_files(pid, tid, files.root) or (), files)


def _read(memory: str, address: int, size: int) -> bytes | None:
    if size > 8 * _MOST_FILES:
        return None
    try:
        file = os.open(memory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.pread(file, size, address)
    except (OSError, OverflowError):
        return None
    finally:
        os.close(file)
    return data if len(data) == size else None
