"""Finds the processes of each configured worker: which are its roots, and what runs below them."""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.processes.pidfile import read_pid_file
from trainwarden_exporter.processes.procformat import TICKS_PER_SECOND
from trainwarden_exporter.processes.procfs import (
    PROC,
    Identity,
    Process,
    boot_seconds,
    descendants,
    parent,
    read_process,
)
from trainwarden_exporter.processes.selector import Facts, Selector, meets
from trainwarden_exporter.processes.table import YOUNG_SECONDS, ProcessTable

__all__ = ["Matcher", "Selector", "Tree", "WorkerKey", "read_own_pid"]

log = logging.getLogger(__name__)


class WorkerKey(NamedTuple):
    """The configured names of a worker, stable over restarts and reloads."""

    run: str
    worker: str


@dataclass(frozen=True, slots=True)
class Tree:
    """The processes of one worker now, zombies included.

    `roots` match the worker's selector and stand below no process of the same worker. `members`
    are the roots and all below them, down to where another worker begins.
    """

    roots: tuple[Process, ...] = ()
    members: tuple[Process, ...] = ()


class _Decision(NamedTuple):
    process: Process
    exec_mark: tuple[str, int]
    """As it was when this was decided."""
    settled: bool
    claims: tuple[WorkerKey, ...] = ()


class _Place(NamedTuple):
    """Where a process stands: the nearest worker at or above it, and all workers there."""

    worker: WorkerKey | None
    workers: frozenset[WorkerKey]


_NOWHERE = _Place(None, frozenset())


class Matcher:
    """Sorts the processes of a machine by worker, reading files only of those not seen before.

    What does not change while a program runs (command line, executable, environment, cgroups) is
    decided once for each process and program; that an older process executes another program is
    seen within AGAIN_SECONDS. A process younger than YOUNG_SECONDS is decided anew each time: after
    a fork it shows its parent's command line until it executes its own program, and its manager may
    yet move it to another cgroup. Nothing is remembered of processes that are gone.

    A process that several selectors match belongs to the worker configured first, or to the one
    that is `descendant_of` the others. `ambiguous` holds those for which the order had to decide.
    Kernel threads and the process `own_pid` (this one by default) match no selector.
    """

    def __init__(
        self,
        selectors: Mapping[WorkerKey, Selector],
        *,
        root: Path = PROC,
        own_pid: int | None = None,
        clock: Callable[[], float] = boot_seconds,
        table: ProcessTable | None = None,
    ) -> None:
        """`table` is of the same `root`, and may be shared; else it has one of its own."""
        self.ambiguous: Mapping[Identity, tuple[WorkerKey, ...]] = {}
        self._selectors = dict(selectors)
        self._root = root
        self._own_pid = read_own_pid(root) if own_pid is None else own_pid
        self._clock = clock
        self._processes: Mapping[int, Process] = {}
        self._decisions: dict[int, _Decision] = {}
        """Of those that a selector matches, or of which it is not settled that none does."""
        self._open: set[int] = set()
        """The pids of those that must be decided anew, though nothing about them has changed."""
        self._holders: dict[WorkerKey, Identity] = {}
        self._unreadable: set[WorkerKey] = set()
        self._table = table or ProcessTable(root, since_boot=clock)
        self._watched: frozenset[int] = frozenset()

    @property
    def watched(self) -> frozenset[int]:
        """The pids of what a selector matched when it was last sorted, and of all below."""
        return self._watched

    @property
    def undecided(self) -> frozenset[WorkerKey]:
        """Workers with a condition about a file that could not be read of some process."""
        return frozenset(self._unreadable)

    def find(self) -> Mapping[WorkerKey, Tree]:
        """The tree of every configured worker, empty where nothing runs.

        What was found last time is read anew, of all else only what may have changed. Raises
        CollectError when the processes cannot be listed.
        """
        return self.sort(self._table.read(self._watched))

    def sort(self, processes: Mapping[int, Process]) -> Mapping[WorkerKey, Tree]:
        """As `find`, for all the processes there are, where they were read already."""
        self._decide(processes)
        self._holders = dict(self._pid_file_holders(processes))
        return self._trees(processes)

    def _decide(self, processes: Mapping[int, Process]) -> None:
        settled_before = (self._clock() - YOUNG_SECONDS) * TICKS_PER_SECOND
        before = self._processes
        for pid in self._decisions.keys() - processes.keys():
            self._forget(pid)
        # most of thousands are who they were: passed over without a step of Python for each
        same = map(operator.is_, processes.values(), map(before.get, processes))
        changed = compress(processes, map(operator.not_, same))
        for pid in self._open.union(changed):
            process, was = processes[pid], before.get(pid)
            decision = self._decisions.get(pid)
            if decision is None and was is not None:
                if (was.identity, was.exec_mark) == (process.identity, process.exec_mark):
                    continue  # it is nobody's still
                decision = _Decision(was, was.exec_mark, settled=True)
            decision = self._decided(process, decision, settled_before)
            self._forget(pid)
            if not decision.settled or decision.process is not process:
                self._open.add(pid)
                self._decisions[pid] = decision
            elif decision.claims:
                self._decisions[pid] = decision
        self._processes = processes

    def _forget(self, pid: int) -> None:
        self._decisions.pop(pid, None)
        self._open.discard(pid)

    def _decided(
        self, process: Process, before: _Decision | None, settled_before: float
    ) -> _Decision:
        """Whose a process is, where `before` was decided of what had its pid."""
        if process.kernel_thread or process.pid == self._own_pid:
            return _Decision(process, process.exec_mark, settled=True)
        if before is not None and before.process.identity != process.identity:
            before = None
        # What is ending has no program any more, from the moment its memory is given back
        # (exit_mm in kernel/exit.c; of a large process that takes seconds): what it was counts.
        if before is not None and (
            (before.settled and before.exec_mark == process.exec_mark) or _is_ending(process)
        ):
            return before._replace(process=process)
        settled = process.identity.start_ticks <= settled_before
        claims = tuple(self._claims(process))
        if before is None or claims == before.claims or self._runs(process):
            return _Decision(process, process.exec_mark, settled, claims)
        return before

    def _claims(self, process: Process) -> Iterator[WorkerKey]:
        facts = Facts(process.pid, self._root)
        for key, selector in self._selectors.items():
            met = meets(selector, facts)
            if met:
                yield key
            elif met is None and key not in self._unreadable and self._runs(process):
                self._warn_unreadable(key, f"{self._root}/{process.pid}")

    def _runs(self, process: Process) -> bool:
        """Whether what was just read about a process is what it is, and not how it ends."""
        now = read_process(process.pid, self._root)
        return now is not None and now.identity == process.identity and not _is_ending(now)

    def _pid_file_holders(
        self, processes: Mapping[int, Process]
    ) -> Iterator[tuple[WorkerKey, Identity]]:
        for key, selector in self._selectors.items():
            if selector.pid_file is None:
                continue
            try:
                file = read_pid_file(selector.pid_file)
            except OSError:
                self._warn_unreadable(key, str(selector.pid_file))
                continue
            process = processes.get(file.pid) if file else None
            # once accepted it stays: a clock set anew must not part a worker from its file
            if (
                file
                and process
                and (self._holders.get(key) == process.identity or file.means(process))
            ):
                yield key, process.identity

    def _warn_unreadable(self, key: WorkerKey, path: str) -> None:
        if key not in self._unreadable:
            self._unreadable.add(key)
            log.warning(
                "worker cannot be matched, file not readable",
                extra={"run": key.run, "worker": key.worker, "path": path},
            )

    def _trees(self, processes: Mapping[int, Process]) -> Mapping[WorkerKey, Tree]:
        roots: dict[WorkerKey, list[Process]] = {key: [] for key in self._selectors}
        members: dict[WorkerKey, list[Process]] = {key: [] for key in self._selectors}
        ambiguous: dict[Identity, tuple[WorkerKey, ...]] = {}
        places: dict[int, _Place] = {}
        watched = self._at_or_below_claims(processes)
        for pid in watched:
            start = processes[pid]
            above, line = _line_above(start, processes, places)
            for process in line:
                claims = self._claims_below(above, process.identity)
                if claims:
                    if claims[0] not in above.workers:
                        roots[claims[0]].append(process)
                    above = _Place(claims[0], above.workers | {claims[0]})
                if len(claims) > 1:
                    ambiguous[process.identity] = claims
                if above.worker is not None:
                    members[above.worker].append(process)
                places[process.pid] = above
        self._report(ambiguous)
        self._watched = frozenset(watched)
        return {key: Tree(tuple(roots[key]), tuple(members[key])) for key in self._selectors}

    def _at_or_below_claims(self, processes: Mapping[int, Process]) -> list[int]:
        """The pids of whatever a selector matches and of all below it, in the table's order."""
        claimed = [pid for pid, one in self._decisions.items() if one.claims]
        if not claimed:
            return []
        found = descendants(processes, claimed) | set(claimed)
        return list(filter(found.__contains__, processes))

    def _claims_below(self, above: _Place, identity: Identity) -> tuple[WorkerKey, ...]:
        """The workers whose selectors match the process, all conditions considered."""
        decision = self._decisions.get(identity.pid)
        if decision is None or not decision.claims:
            return ()
        claims: list[WorkerKey] = []
        outdone: set[WorkerKey] = set()
        for key in decision.claims:
            selector = self._selectors[key]
            if selector.pid_file is not None and self._holders.get(key) != identity:
                continue
            if selector.descendant_of is not None:
                ancestor = WorkerKey(key.run, selector.descendant_of)
                if ancestor not in above.workers:
                    continue
                outdone.add(ancestor)
            claims.append(key)
        return tuple(key for key in claims if key not in outdone)

    def _report(self, ambiguous: Mapping[Identity, tuple[WorkerKey, ...]]) -> None:
        before, now = set(self.ambiguous.values()), set(ambiguous.values())
        self.ambiguous = ambiguous
        for claims in sorted(now - before):
            pids = [identity.pid for identity, by in ambiguous.items() if by == claims]
            names = [f"{key.run}/{key.worker}" for key in claims]
            log.warning(
                "process matched by several workers, counted for the first",
                extra={"workers": names, "pids": pids},
            )
        for claims in sorted(before - now):
            names = [f"{key.run}/{key.worker}" for key in claims]
            log.info("process no longer matched by several workers", extra={"workers": names})


def _is_ending(process: Process) -> bool:
    return not (process.alive and process.resident_bytes)


def _line_above(
    process: Process, processes: Mapping[int, Process], places: Mapping[int, _Place]
) -> tuple[_Place, list[Process]]:
    """What stands above, and the line from there down to `process` that is not placed yet."""
    line: list[Process] = []
    step: Process | None = process
    while step is not None and step.pid not in places and step not in line:
        line.append(step)
        step = parent(step, processes)
    above = _NOWHERE if step is None else places.get(step.pid, _NOWHERE)
    return above, line[::-1]


def read_own_pid(root: Path = PROC) -> int:
    """The pid of this process as the /proc at `root` counts, which may be another namespace's."""
    try:
        return int(str((root / "self").readlink()))
    except (OSError, ValueError):
        return os.getpid()
