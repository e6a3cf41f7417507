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
    boot_seconds,
    list_pids,
    read_process,
    read_text,
)

AGAIN_SECONDS = 20.0
"""By then whoever is of no interest is read again all the same: it may run another program."""

_TURNS = 16

YOUNG_SECONDS = 10.0
"""A process younger than this is read each time: after a fork it is yet to become what it is."""


class Handed(NamedTuple):
    """How far the kernel has come in giving out pids: the last one, and how many since boot."""

    last: int
    total: int


class ProcessTable:
    """The processes there are, most of them as they were read a while ago.

    To open thousands of files is nearly all that a look at a machine costs, and most processes are
    nobody's worker. One that was read before is taken for the same while its pid cannot have been
    given out anew since: pids are given out in a circle (`alloc_pid` in kernel/pid.c), and /proc
    tells where in the circle the kernel is, and how many it has given out. Where it does not tell,
    or the circle may have been closed, everything is read.

    Threads may share one, so that each process is remembered once, and read again once; one that
    comes while another reads waits for it.
    """

    def __init__(
        self,
        root: Path = PROC,
        *,
        clock: Callable[[], float] = time.monotonic,
        since_boot: Callable[[], float] = boot_seconds,
    ) -> None:
        self._root = root
        self._clock = clock
        self._since_boot = since_boot
        self._processes: dict[int, Process] = {}
        self._young: set[int] = set()
        self._handed: Handed | None = None
        # Not all of a moment at once: that moment would come again and again.
        began = clock()
        self._again_at = [began + AGAIN_SECONDS * (turn + 1) / _TURNS for turn in range(_TURNS)]
        self._circle = _read_circle(root)
        self._turn = Lock()

    def read(self, fresh: Collection[int] = ()) -> Mapping[int, Process]:
        """Every process there is now, by pid; those in `fresh` as they are this moment.

        Of the others, state, memory and times may be up to AGAIN_SECONDS old (those of a kernel
        thread any age), never the identity. One that was not read again is the same object as
        before. Raises CollectError when the processes cannot be listed.
        """
        with self._turn:
            return self._read(fresh)

    def _read(self, fresh: Collection[int]) -> Mapping[int, Process]:
        pids = list_pids(self._root)
        handed = read_handed(self._root) if self._circle else None
        old_enough = (self._since_boot() - YOUNG_SECONDS) * TICKS_PER_SECOND
        doubtful = self._doubtful(pids, handed)
        doubtful.update(fresh)
        # most are only passed on, thousands at a time: a step of Python for each costs much
        found: dict[int, Process | None] = dict(
            zip(pids, map(self._processes.get, pids), strict=True)
        )
        for pid in (found.keys() - self._processes.keys()) | (found.keys() & doubtful):
            found[pid] = process = read_process(pid, self._root)
            if process is not None and process.identity.start_ticks > old_enough:
                self._young.add(pid)
        processes = {pid: process for pid, process in found.items() if process is not None}
        self._processes, self._handed = processes, handed
        return processes

    def _doubtful(self, pids: Collection[int], handed: Handed | None) -> set[int]:
        """Of whom was read before, those that may have changed."""
        before, self._young = self._young, set()
        if handed is None or self._handed is None:
            return set(pids)
        doubtful, now = before, self._clock()
        doubtful.update(given_anew(pids, self._handed, handed, self._circle))
        due = {turn for turn, again_at in enumerate(self._again_at) if now >= again_at}
        if due:
            doubtful.update(
                pid
                for pid, process in self._processes.items()
                # what the kernel runs itself never becomes a program
                if pid % _TURNS in due and not process.kernel_thread
            )
            for turn in due:
                self._again_at[turn] = now + AGAIN_SECONDS
        return doubtful


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
        return {pid for pid in pids if then.last < pid <= now.last}
    return {pid for pid in pids if pid > then.last or pid <= now.last}


def read_handed(root: Path = PROC) -> Handed | None:
    """How far the kernel has come; None where it does not tell (see proc(5), loadavg and stat)."""
    average, statistics = read_text(f"{root}/loadavg"), read_text(f"{root}/stat")
    try:
        last = int((average or "").split()[4])
        counts = (statistics or "").split("\nprocesses ", 1)[1]
        return Handed(last, int(counts.split(maxsplit=1)[0]))
    except (IndexError, ValueError):
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
