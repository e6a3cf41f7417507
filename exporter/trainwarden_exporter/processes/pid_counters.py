"""Counts the pids that the kernel has allocated, and which of them it may have reused."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs import PROC, read_text


class PidsAllocated(NamedTuple):
    """Pid allocation of the kernel: last pid, and number of allocations since boot.

    The last pid is of our namespace, the number is of the whole machine.
    """

    last: int
    total: int


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


def read_pid_max(root: Path = PROC) -> int:
    """Returns the size of the pid space; 0 if `root` shows another namespace or is unreadable."""
    try:
        # loadavg reports the reader's namespace, whatever namespace `root` shows
        if str((root / "self").readlink()) != str(os.getpid()):
            return 0
        return int(read_text(f"{root}/sys/kernel/pid_max") or 0)
    except (OSError, ValueError, CollectError):
        return 0
