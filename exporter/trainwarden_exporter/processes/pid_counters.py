"""Counts allocated pids and processes without listing them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs import PROC, is_own_proc, read_text

_INITIAL_NAMESPACE = "pid:[4026531836]"  # PID_NS_INIT_INO in include/uapi/linux/nsfs.h
_OWN_LINKS = 2


class PidsAllocated(NamedTuple):
    """Pid allocation of the kernel: last pid, and number of allocations since boot.

    The last pid is of our namespace, the number is of the whole machine.
    """

    last: int
    total: int


class ProcessCount(NamedTuple):
    """Pid allocation, and an upper bound of the number of processes on the whole machine."""

    allocated: PidsAllocated
    processes: int


def possibly_reused(
    pids: Iterable[int], before: PidsAllocated, now: PidsAllocated, pid_max: int
) -> set[int]:
    """Returns the pids that the kernel may have reused between two moments.

    `pid_max` is the size of the pid space. Half a cycle counts as a whole one, because the number
    of skipped pids in use is unknown.
    """
    if now.total == before.total:
        return set()
    if not 0 < now.total - before.total < pid_max // 2:
        return set(pids)
    if before.last <= now.last:
        return set(range(before.last + 1, now.last + 1)).intersection(pids)
    return {pid for pid in pids if pid > before.last or pid <= now.last}


def read_process_count(root: Path = PROC) -> ProcessCount | None:
    """Returns values that stay equal if no process started or ended; None if unavailable."""
    allocated, links = read_pids_allocated(root), read_link_count(root)
    return None if allocated is None or links is None else ProcessCount(allocated, links)


def read_pids_allocated(root: Path = PROC) -> PidsAllocated | None:
    """Returns the pid allocation; None if unavailable (see proc(5), loadavg and stat)."""
    average, statistics = read_text(f"{root}/loadavg"), read_text(f"{root}/stat")
    try:
        last = int((average or "").split()[4])
        counts = (statistics or "").split("\nprocesses ", 1)[1]
        allocated = PidsAllocated(last, int(counts.split(maxsplit=1)[0]))
    except (IndexError, ValueError):
        return None
    # without own allocations, these numbers are not of our namespace
    return allocated if allocated.total else None


def read_link_count(root: Path = PROC) -> int | None:
    """Returns the number of links of /proc: processes plus a constant (fs/proc/root.c)."""
    try:
        return root.stat().st_nlink
    except OSError:
        return None


def count_non_process_links(root: Path = PROC) -> int:
    """Returns how many of these links are folders of `root` other than processes."""
    try:
        with os.scandir(root) as entries:
            folders = (one.name for one in entries if one.is_dir(follow_symlinks=False))
            return _OWN_LINKS + sum(not name.isdecimal() for name in folders)
    except OSError:
        return 0


def is_initial_pid_namespace(root: Path = PROC) -> bool:
    """Whether the pids at `root` are those of the initial pid namespace, and ours."""
    try:
        return is_own_proc(root) and str((root / "self/ns/pid").readlink()) == _INITIAL_NAMESPACE
    except OSError:
        return False


def read_pid_max(root: Path = PROC) -> int:
    """Returns the size of the pid space; 0 if `root` shows another namespace or is unreadable."""
    try:
        # loadavg reports the reader's namespace, whatever namespace `root` shows
        if str((root / "self").readlink()) != str(os.getpid()):
            return 0
        return int(read_text(f"{root}/sys/kernel/pid_max") or 0)
    except (OSError, ValueError, CollectError):
        return 0
