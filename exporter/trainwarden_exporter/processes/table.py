"""Remembers the processes of a machine, and reads only those again that may have changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
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

YOUNG_SECONDS = 10.0
"""A process younger than this is read each time: after a fork it is yet to become what it is."""


class Handed(NamedTuple):
    """How far the kernel has come in giving out pids: the last one, and how many since boot."""

    last: int
    total: int


class _Entry(NamedTuple):
    process: Process
    handed: Handed
    again_at: float


class ProcessTable:
    """The processes there are, most of them as they were read a while ago.

    To open thousands of files is nearly all that a look at a machine costs, and most processes are
    nobody's worker. One that was read before is taken for the same while its pid cannot have been
    given out anew since: pids are given out in a circle (`alloc_pid` in kernel/pid.c), and /proc
    tells where in the circle the kernel is, and how many it has given out. Where it does not tell,
    or the circle may have been closed, everything is read.
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
        self._entries: dict[int, _Entry] = {}
        self._circle = _read_circle(root)

    def read(self, fresh: Collection[int] = ()) -> Mapping[int, Process]:
        """Every process there is now, by pid; those in `fresh` as they are this moment.

        Of the others, state, memory and times may be up to AGAIN_SECONDS old, never the identity.
        Raises CollectError when the processes cannot be listed.
        """
        pids = list_pids(self._root)
        handed = read_handed(self._root) if self._circle else None
        now = self._clock()
        old_enough = (self._since_boot() - YOUNG_SECONDS) * TICKS_PER_SECOND
        entries: dict[int, _Entry] = {}
        for pid in pids:
            entry = self._entries.get(pid)
            if (
                entry is None
                or handed is None
                or pid in fresh
                or now >= entry.again_at
                or entry.process.identity.start_ticks > old_enough
                or may_be_another(pid, entry.handed, handed, self._circle)
            ):
                process = read_process(pid, self._root)
                if process is None:
                    continue
                # Not all of a moment at once: that moment would come again and again.
                again_at = now + AGAIN_SECONDS * (0.5 + 0.5 * (pid % 16) / 16)
                entry = _Entry(process, handed or Handed(0, 0), again_at)
            entries[pid] = entry
        self._entries = entries
        return {pid: entry.process for pid, entry in entries.items()}


def may_be_another(pid: int, then: Handed, now: Handed, circle: int) -> bool:
    """Whether the kernel may have given `pid` to somebody else between two moments.

    `circle` is how many pids there are. Half of a circle is taken for a whole one: how many are
    passed over, because they are in use, is not known.
    """
    if now.total == then.total:
        return False
    if not 0 < now.total - then.total < circle // 2:
        return True
    if then.last <= now.last:
        return then.last < pid <= now.last
    return pid > then.last or pid <= now.last


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
