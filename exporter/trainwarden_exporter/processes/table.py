"""Remembers the processes of a machine, and reads only those again that may have changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from threading import Lock

from trainwarden_exporter.processes.census import (
    Census,
    Handed,
    count_others,
    given_anew,
    is_first_namespace,
    read_census,
    read_circle,
    read_handed,
    read_links,
)
from trainwarden_exporter.processes.procformat import TICKS_PER_SECOND
from trainwarden_exporter.processes.procfs import (
    PROC,
    Process,
    are_own,
    boot_seconds,
    list_pids,
    read_process,
)

AGAIN_SECONDS = 20.0
"""By then whoever is of no interest is read again all the same, if it has run since: it may run
another program."""

_ON_THEIR_WAY = 32
"""Of the pids given out last, so many may be of processes that were yet to be counted, and seen."""

_CPUCLOCK_SCHED = 2  # what the clock of a pid is made of (include/linux/posix-timers_types.h)
_LAG_SECONDS = 1.0  # the clock of what runs on another core is brought up to date by its tick
_TURNS = 16
_TURN_SECONDS = (AGAIN_SECONDS - _LAG_SECONDS) / _TURNS

YOUNG_SECONDS = 10.0
"""A process younger than this is read each time: after a fork it is yet to become what it is."""


class ProcessTable:
    """The processes there are, most of them as they were read a while ago.

    To open thousands of files is nearly all that a look at a machine costs, and most processes are
    nobody's worker. One that was read before is taken for the same while its pid cannot have been
    given out anew since: pids are given out in a circle (`alloc_pid` in kernel/pid.c), and /proc
    tells where in the circle the kernel is, and how many it has given out. Where it does not tell,
    or the circle may have been closed, everything is read. And while there are as many as before,
    and those that have begun since, they are the same ones and those, and not even listed.

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
        self._circle = read_circle(root)
        tells = self._cpu_clock(1) is not None  # that one is always there
        self._counts_us_all = bool(self._circle) and is_first_namespace(root) and tells
        """Whether who has begun anywhere on the machine has a pid here, and a clock that tells."""
        self._others = count_others(root)
        self._hides = True
        """Whether more processes are counted than are shown."""
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
        due = self._hides and turns // _TURNS != self._turns_taken // _TURNS
        begun = None if census is None or due else self._begun(census)
        if census is None or begun is None:
            processes, doubtful, handed = self._list()
        else:
            processes, doubtful, handed = self._processes.copy(), begun, census.handed
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
        self._census = None
        # fewer than are seen: whoever shows this /proc counts something else; and of who began
        # while they were listed it is not known whether they were counted
        if census is not None and census.processes >= len(processes) and census.handed == handed:
            self._census = census
        self._hides = census is None or census.processes - self._others != len(processes)
        self._processes, self._handed, self._young = processes, handed, young
        self._turns_taken, self._ended = turns, ended
        return processes

    def _begun(self, now: Census) -> set[int] | None:
        """The pids of who has begun since the last census; None where somebody else may be gone.

        Each of the pids given out since is looked at; there must be more processes by just as many.
        To count one too many, hidden or there before, only leads to a list.
        """
        then = self._census
        if then is None:
            return None
        if now == then:
            return set()
        last, given = then.handed.last, now.handed.total - then.handed.total
        if (
            not self._counts_us_all
            or now.handed.last - last != given  # some were in use, or the circle was closed
            or not 0 < given < len(self._processes)  # else to list them is as quick
        ):
            return None
        may_be = set(range(max(1, last + 1 - _ON_THEIR_WAY), last + given + 1))
        known = may_be.intersection(self._processes)
        if known and max(known) > last:  # that one may be somebody else
            return None
        begun = {pid for pid in may_be - known if self._cpu_clock(pid) is not None}
        if now.processes != then.processes + len(begun):
            return None
        # whoever ended before it was looked for was counted all the same
        same = read_links(self._root) == now.processes and read_handed(self._root) == now.handed
        return begun if same else None

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
