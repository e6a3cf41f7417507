"""Finds the files for which a thread waits, and whether a process outside of the run has an end."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from pathlib import Path

from trainwarden_exporter.processes.procfs import read_text
from trainwarden_exporter.processes.stacks.far_ends import (
    UNKNOWN,
    find_pipe_ends,
    find_servers,
    leads_outside,
)
from trainwarden_exporter.processes.stacks.model import FarEnd
from trainwarden_exporter.processes.stacks.open_files import OpenFiles, read_link
from trainwarden_exporter.processes.stacks.system_calls import (
    EPOLL,
    POLL,
    SELECT,
    read_call,
    read_memory,
)

_MOST_FILES = 4096

MAX_FILES = 16
"""Files of one wait whose other ends are searched for."""


def find_awaited_files(pid: int, tid: int, root: Path) -> tuple[int, ...] | None:
    """Returns the file descriptors for which a thread waits; None if they are not known."""
    call, folder = read_call(f"{root}/{pid}/task/{tid}"), f"{root}/{pid}"
    if call is None:
        return None
    first, *others = call.arguments[:4]
    if call.number in POLL:
        data = _read(folder, first, 8 * others[0])  # struct pollfd in poll.h
        return None if data is None else tuple(one[0] for one in struct.iter_unpack("=ihh", data))
    if call.number in SELECT:
        return _read_sets(folder, first, others)
    if call.number in EPOLL:
        listed = read_text(f"{folder}/fdinfo/{first}")
        found = re.findall(r"^tfd:\s*(\d+)", listed or "", re.MULTILINE)
        return None if listed is None else tuple(map(int, found))
    return None if call.file_number is None else (call.file_number,)


def _read_sets(folder: str, count: int, addresses: Iterable[int]) -> tuple[int, ...] | None:
    """Returns the files in sets of select(2), which have a bit for each of `count` files."""
    if count > 64 * _MOST_FILES:
        return None
    words = -(-count // 64)
    sets = [_read(folder, one, 8 * words) for one in addresses if one]
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


def _read(folder: str, address: int, size: int) -> bytes | None:
    data = read_memory(folder, address, size) if size <= 8 * _MOST_FILES else None
    return data if data is not None and len(data) == size else None
