"""Caches the processes of a host, and reads only the processes that may have changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from threading import Lock

from trainwarden_exporter.processes.pid_counters import (
    PidsAllocated,
    possibly_reused,
    read_pid_max,
    read_pids_allocated,
)
from trainwarden_exporter.processes.procfs import (
    PROC,
    Process,
    is_own_proc,
    list_pids,
    read_process,
)
from trainwarden_exporter.processes.procfs_parser import TICKS_PER_SECOND
from trainwarden_exporter.processes.start_times import boot_seconds

REREAD_SECONDS = 20.0
"""Seconds after which an unmatched process is read again if it has run since, because it may
have executed another program."""

_CPUCLOCK_SCHED = 2  # what the clock of a pid is made of (include/linux/posix-timers_types.h)
_LAG_SECONDS = 1.0  # the clock of a process on another core is updated by that core's tick
_SLOTS = 16
_SLOT_SECONDS = (REREAD_SECONDS - _LAG_SECONDS) / _SLOTS

YOUNG_SECONDS = 10.0
"""A process younger than this is read each time, because after a fork its exec may follow."""


class ProcessTable:
    """The current processes, most of them as they were at an earlier read.

    Opening thousands of files dominates the cost of observing a machine, and most processes belong
    to no worker. A known process counts as unchanged as long as its pid cannot have been reused:
    the kernel allocates pids cyclically (`alloc_pid` in kernel/pid.c), and /proc shows the current
    position and the number of allocations. If these are unavailable, or a whole cycle is possible,
    everything is read.

    Threads may share a table; a thread waits while another one reads.
    """

    def __init__(
        self,
        root: Path = PROC,
        *,
        clock: Callable[[], float] = time.monotonic,
        since_boot: Callable[[], float] = boot_seconds,
        cpu_clock: Callable[[int], int | None] | None = None,
    ) -> None:
        """`cpu_clock` returns the run time of a process, or None if unknown."""
        self._root = root
        self._clock = clock
        self._since_boot = since_boot
        self._cpu_clock = cpu_clock or (read_cpu_clock if is_own_proc(root) else _unknown)
        self._processes: dict[int, Process] = {}
        self._young_pids: set[int] = set()
        self._cpu_clock_values: dict[int, int] = {}
        """Run times of the processes at their last periodic read."""
        self._allocated: PidsAllocated | None = None
        self._began = clock()
        self._last_slot = 0
        self._ended_pids: set[int] = set()
        """Pids that ended between listing and reading."""
        self._pid_max = read_pid_max(root)
        self._lock = Lock()

    def read(self, refresh: Collection[int] = ()) -> Mapping[int, Process]:
        """Returns all current processes by pid; those in `refresh` are read now.

        For others, state, memory and times may be up to REREAD_SECONDS old (of any age for kernel
        threads, and for the memory of idle processes), but never the identity. An entry that was
        not read again is the same object as before. Raises CollectError if the processes cannot be
        listed.
        """
        with self._lock:
            return self._read(refresh)

    def _read(self, refresh: Collection[int]) -> Mapping[int, Process]:
        slot = self._current_slot()
        processes, to_read, allocated = self._list_processes()
        active = self._active_since_last_slot(slot)
        to_read.update(filter(processes.__contains__, (*self._young_pids, *active, *refresh)))
        old_enough = (self._since_boot() - YOUNG_SECONDS) * TICKS_PER_SECOND
        young, ended = set[int](), set[int]()
        for pid in to_read:
            process = read_process(pid, self._root)
            if process is None:
                processes.pop(pid, None)
                ended.add(pid)
                continue
            processes[process.identity.pid] = process
            if process.identity.start_ticks > old_enough:
                young.add(pid)
        # only after all reads: a failed read must be repeated
        self._store_cpu_clocks(processes, to_read, active)
        self._processes, self._allocated, self._young_pids = processes, allocated, young
        self._last_slot, self._ended_pids = slot, ended
        return processes

    def _list_processes(self) -> tuple[dict[int, Process], set[int], PidsAllocated | None]:
        """Returns the known processes that still exist, the pids to read and the pid allocation."""
        pids = set(list_pids(self._root))
        allocated = read_pids_allocated(self._root) if self._pid_max else None
        processes = self._processes.copy()
        gone = processes.keys() - pids
        for pid in gone:
            del processes[pid]
        if allocated is None or self._allocated is None:
            return processes, pids, allocated
        to_read = pids - processes.keys()
        to_read |= possibly_reused(processes, self._allocated, allocated, self._pid_max)
        gone |= self._ended_pids
        if gone:  # their children have a new parent
            to_read.update(pid for pid, one in processes.items() if one.parent_pid in gone)
        return processes, to_read, allocated

    def _current_slot(self) -> int:
        return int((self._clock() - self._began) / _SLOT_SECONDS)

    def _active_since_last_slot(self, slot: int) -> dict[int, int | None]:
        """Returns the processes of this slot that have run since their last read."""
        first = max(self._last_slot + 1, slot - _SLOTS + 1)
        due = {turn % _SLOTS for turn in range(first, slot + 1)}
        if not due:
            return {}
        active = dict[int, int | None]()
        for pid, process in self._processes.items():
            if pid % _SLOTS in due and not process.kernel_thread:
                ran = self._cpu_clock(pid)
                if ran is None or ran != self._cpu_clock_values.get(pid):
                    active[pid] = ran
        return active

    def _store_cpu_clocks(
        self, processes: dict[int, Process], read: Iterable[int], active: Mapping[int, int | None]
    ) -> None:
        """Stores the run times of the processes that were `read`."""
        for pid in read:
            self._cpu_clock_values.pop(pid, None)
        run_times = {
            pid: ran for pid, ran in active.items() if ran is not None and pid in processes
        }
        self._cpu_clock_values.update(run_times)
        if len(self._cpu_clock_values) > len(processes):
            self._cpu_clock_values = {
                pid: ran for pid, ran in self._cpu_clock_values.items() if pid in processes
            }


def read_cpu_clock(pid: int) -> int | None:
    """Returns the run time of our process with that pid in nanoseconds; None if unavailable.

    Takes a thirtieth of the time of `read_process`, and needs no permission.
    """
    try:
        return time.clock_gettime_ns(~pid << 3 | _CPUCLOCK_SCHED)
    except OSError:
        return None


def _unknown(_: int) -> None:
    return None
