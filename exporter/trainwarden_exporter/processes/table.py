"""Remembers the processes of a machine, and reads only those again that may have changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procformat import TICKS_PER_SECOND
from trainwarden_exporter.processes.procfs import (
    PROC,
    Process,
    are_own,
    boot_seconds,
    list_pids,
    read_process,
    read_text,
)

AGAIN_SECONDS = 20.0
"""By then whoever is of no interest is read again all the same, if it has run since: it may run
another program."""

_CPUCLOCK_SCHED = 2  # what the clock of a pid is made of (include/linux/posix-timers_types.h)
_LAG_SECONDS = 1.0  # the clock of what runs on another core is brought up to date by its tick
_TURNS = 16
_TURN_SECONDS = (AGAIN_SECONDS - _LAG_SECONDS) / _TURNS

YOUNG_SECONDS = 10.0
"""A process younger than this is read each time: after a fork it is yet to become what it is."""


class Handed(NamedTuple):
    """How far the kernel has come in giving out pids: the last one, and how many since boot."""

    last: int
    total: int


class Census(NamedTuple):
    """How many pids were given out since boot, and how many processes there are, and some more.

    Of the whole machine, in whatever namespace we are.
    """

    total: int
    processes: int


class ProcessTable:
    """The processes there are, most of them as they were read a while ago.

    To open thousands of files is nearly all that a look at a machine costs, and most processes are
    nobody's worker. One that was read before is taken for the same while its pid cannot have been
    given out anew since: pids are given out in a circle (`alloc_pid` in kernel/pid.c), and /proc
    tells where in the circle the kernel is, and how many it has given out. Where it does not tell,
    or the circle may have been closed, everything is read. And while none was begun and there are
    as many as before, they are the same ones, and not even listed.

    Threads may share one, so that each process is remembered once, and read again once; one that
    comes while another reads waits for it.
    """

    def __init__(
        self,
        root: Path = PROC,
        *,
        clock: Callable[[], float] = time.monotonic,
        since_boot: Callable[[], float] = boot_seconds,
        cpu_clock: Callable[[int], int | None] | None = None,
    ) -> None:
        """`cpu_clock`: for how long a process has run, None where that is not known."""
        self._root = root
        self._clock = clock
        self._since_boot = since_boot
        self._cpu_clock = cpu_clock or (read_cpu_clock if are_own(root) else _unknown)
        self._processes: dict[int, Process] = {}
        self._young: set[int] = set()
        self._ran: dict[int, int] = {}
        """For how long those had run that were last read in their turn."""
        self._handed: Handed | None = None
        self._census: Census | None = None
        self._began = clock()
        self._turns_taken = 0
        self._ended: set[int] = set()
        """Who had ended before it could be read: between the list and that."""
        self._circle = _read_circle(root)
        self._turn = Lock()

    def read(self, fresh: Collection[int] = ()) -> Mapping[int, Process]:
        """Every process there is now, by pid; those in `fresh` as they are this moment.

        Of the others, state, memory and times may be up to AGAIN_SECONDS old (those of a kernel
        thread any age, and the memory of what has not run since), never the identity. One that was
        not read again is the same object as before. Raises CollectError when the processes cannot
        be listed.
        """
        with self._turn:
            return self._read(fresh)

    def _read(self, fresh: Collection[int]) -> Mapping[int, Process]:
        # first of all, so that who comes or goes from here on makes another one
        census = read_census(self._root) if self._circle else None
        turns = self._turns()
        # and now and then all the same: who was hidden (hidepid) may be shown without having begun
        due = turns // _TURNS != self._turns_taken // _TURNS
        if census is None or census != self._census or due:
            processes, doubtful, handed = self._list()
        else:
            processes, doubtful, handed = self._processes.copy(), set[int](), self._handed
        moved = self._moved(turns)
        doubtful.update(filter(processes.__contains__, (*self._young, *moved, *fresh)))
        old_enough = (self._since_boot() - YOUNG_SECONDS) * TICKS_PER_SECOND
        young, ended = set[int](), set[int]()
        for pid in doubtful:
            process = read_process(pid, self._root)
            if process is None:
                processes.pop(pid, None)
                ended.add(pid)
                continue
            processes[process.identity.pid] = process
            if process.identity.start_ticks > old_enough:
                young.add(pid)
        # not before all is read: what failed must come again
        self._remember(processes, doubtful, moved)
        # fewer than are seen: whoever shows this /proc counts something else
        counted = census is not None and census.processes >= len(processes)
        self._census = census if counted else None
        self._processes, self._handed, self._young = processes, handed, young
        self._turns_taken, self._ended = turns, ended
        return processes

    def _list(self) -> tuple[dict[int, Process], set[int], Handed | None]:
        """Those known before that are still there; whom to read; how far the kernel has come."""
        pids = set(list_pids(self._root))
        handed = read_handed(self._root) if self._circle else None
        processes = self._processes.copy()
        gone = processes.keys() - pids
        for pid in gone:
            del processes[pid]
        if handed is None or self._handed is None:
            return processes, pids, handed
        doubtful = pids - processes.keys()
        doubtful |= given_anew(processes, self._handed, handed, self._circle)
        gone |= self._ended
        if gone:  # another one is now the parent of their children
            doubtful.update(pid for pid, one in processes.items() if one.parent_pid in gone)
        return processes, doubtful, handed

    def _turns(self) -> int:
        return int((self._clock() - self._began) / _TURN_SECONDS)

    def _moved(self, turns: int) -> dict[int, int | None]:
        """Of those whose turn it is: for how long they have run, unless that is as long as before.

        What has not run is what it was. The kernel's own never become a program.
        """
        first = max(self._turns_taken + 1, turns - _TURNS + 1)
        due = {turn % _TURNS for turn in range(first, turns + 1)}
        if not due:
            return {}
        moved = dict[int, int | None]()
        for pid, process in self._processes.items():
            if pid % _TURNS in due and not process.kernel_thread:
                ran = self._cpu_clock(pid)
                if ran is None or ran != self._ran.get(pid):
                    moved[pid] = ran
        return moved

    def _remember(
        self, processes: dict[int, Process], read: Iterable[int], moved: Mapping[int, int | None]
    ) -> None:
        """Keep for how long those have run that were `read` as they `moved`."""
        for pid in read:
            self._ran.pop(pid, None)
        told = {pid: ran for pid, ran in moved.items() if ran is not None and pid in processes}
        self._ran.update(told)
        if len(self._ran) > len(processes):
            self._ran = {pid: ran for pid, ran in self._ran.items() if pid in processes}


def given_anew(pids: Iterable[int], then: Handed, now: Handed, circle: int) -> set[int]:
    """Which of `pids` the kernel may have given to somebody else between two moments.

    `circle` is how many pids there are. Half of a circle is taken for a whole one: how many are
    passed over, because they are in use, is not known.
    """
    if now.total == then.total:
        return set()
    if not 0 < now.total - then.total < circle // 2:
        return set(pids)
    if then.last <= now.last:
        return set(range(then.last + 1, now.last + 1)).intersection(pids)
    return {pid for pid in pids if pid > then.last or pid <= now.last}


def read_census(root: Path = PROC) -> Census | None:
    """What may tell that nobody came or went; None where it is not told."""
    handed = read_handed(root)
    try:
        # as many links as processes, and some: proc_root_getattr in fs/proc/root.c
        return None if handed is None else Census(handed.total, root.stat().st_nlink)
    except OSError:
        return None


def read_handed(root: Path = PROC) -> Handed | None:
    """How far the kernel has come; None where it does not tell (see proc(5), loadavg and stat)."""
    average, statistics = read_text(f"{root}/loadavg"), read_text(f"{root}/stat")
    try:
        last = int((average or "").split()[4])
        counts = (statistics or "").split("\nprocesses ", 1)[1]
        handed = Handed(last, int(counts.split(maxsplit=1)[0]))
    except (IndexError, ValueError):
        return None
    return handed if handed.total else None  # who has begun none does not count them


def read_cpu_clock(pid: int) -> int | None:
    """Nanoseconds for which the process of ours with that pid has run; None where none is told.

    It takes a thirtieth of the time that `read_process` does, and needs no right.
    """
    try:
        return time.clock_gettime_ns(~pid << 3 | _CPUCLOCK_SCHED)
    except OSError:
        return None


def _unknown(_: int) -> None:
    return None


def _read_circle(root: Path) -> int:
    """How many pids there are; 0 where `root` tells of another namespace's, or not at all."""
    try:
        # loadavg tells of the reader's own namespace, whatever namespace `root` shows
        if str((root / "self").readlink()) != str(os.getpid()):
            return 0
        return int(read_text(f"{root}/sys/kernel/pid_max") or 0)
    except (OSError, ValueError, CollectError):
        return 0
