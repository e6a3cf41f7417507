"""Finds the processes of each configured worker: its roots and their descendants."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from trainwarden_exporter.processes.ancestry import children_of, descendants, parent
from trainwarden_exporter.processes.pid_file import PidFile, read_pid_file
from trainwarden_exporter.processes.process_table import YOUNG_SECONDS, ProcessTable
from trainwarden_exporter.processes.procfs import (
    PROC,
    Identity,
    Process,
    read_command_line,
    read_own_pid,
    read_process,
    read_uid,
)
from trainwarden_exporter.processes.procfs_parser import TICKS_PER_SECOND
from trainwarden_exporter.processes.selector import ProcessAttributes, Selector, matches_selector
from trainwarden_exporter.processes.start_times import boot_seconds, start_timestamp
from trainwarden_exporter.processes.worker_shells import WorkerShell, parse_worker_shell

__all__ = ["Matcher", "ProcessTree", "Selector", "WorkerKey"]
log = logging.getLogger(__name__)


class WorkerKey(NamedTuple):
    """Configured names of a run and its worker, stable across restarts and reloads."""

    run: str
    worker: str


@dataclass(frozen=True, slots=True)
class ProcessTree:
    """Current processes of one worker, including zombies.

    `roots` match the worker's selector and are not descendants of the same worker. `members` are
    the roots and their descendants, except those of another worker. `shells` match too, but only
    run the worker, or stay open after it (worker_shells.py).
    """

    roots: tuple[Process, ...] = ()
    members: tuple[Process, ...] = ()
    shells: tuple[Process, ...] = ()


class _Assignment(NamedTuple):
    process: Process
    exec_mark: tuple[str, int]
    """The exec mark at the time of the decision."""
    settled: bool
    claims: Mapping[WorkerKey, WorkerShell | None] = MappingProxyType({})
    """The workers that it matches, each with what it is if it only runs the worker."""


class _TreePosition(NamedTuple):
    """Position of a process in the tree: nearest worker at or above it, and all workers above."""

    worker: WorkerKey | None
    workers: frozenset[WorkerKey]


_OUTSIDE = _TreePosition(None, frozenset())
_Holders = Iterator[tuple[WorkerKey, Identity]]


class Matcher:
    """Assigns the processes of a machine to workers, and reads only the files of new processes.

    Attributes that stay constant while a program runs (command line, executable, environment,
    cgroups) are evaluated once per process and program; an exec in an older process is noticed
    within REREAD_SECONDS. Processes younger than YOUNG_SECONDS are evaluated each time: after a
    fork a process shows its parent's command line until its exec, and its manager may move it to
    another cgroup.

    A process that matches several selectors belongs to the worker configured first, or to the
    worker that is `descendant_of` the others. `ambiguous` holds the processes decided by order.
    Kernel threads and this process match no selector.
    """

    def __init__(
        self,
        selectors: Mapping[WorkerKey, Selector],
        *,
        root: Path = PROC,
        clock: Callable[[], float] = boot_seconds,
        table: ProcessTable | None = None,
    ) -> None:
        """`table` is the process table of `root`, if shared; else the matcher creates one."""
        self.ambiguous: Mapping[Identity, tuple[WorkerKey, ...]] = {}
        self._selectors = dict(selectors)
        self._root = root
        self._own_pid = read_own_pid(root)
        self._clock = clock
        self._processes: Mapping[int, Process] = {}
        self._assignments: dict[int, _Assignment] = {}
        """Assignments of matched and undecided processes."""
        self._to_recheck: set[int] = set()
        """Pids to evaluate again although they are unchanged."""
        self._accepted_pid_files: dict[WorkerKey, Identity] = {}
        self.unread: frozenset[WorkerKey] = frozenset()
        """Workers whose pid file could not be read at the last look, though it exists."""
        self._unreadable: set[WorkerKey] = set()
        self._untrusted: set[WorkerKey] = set()
        """Workers with a pid file that other accounts can write."""
        self._table = table or ProcessTable(root, since_boot=clock)
        self.watched: frozenset[int] = frozenset()
        """Pids of matched processes and their descendants."""

    @property
    def undecided(self) -> frozenset[WorkerKey]:
        """Returns the workers with a condition whose file is unreadable for some process."""
        return frozenset(self._unreadable)

    def find(self) -> Mapping[WorkerKey, ProcessTree]:
        """Returns the process tree of every configured worker; empty if none runs.

        Reads the processes of the last result again, and others only if they may have changed.
        Raises CollectError if the processes cannot be listed.
        """
        return self.assign(self._table.read(self.watched))

    def assign(self, processes: Mapping[int, Process]) -> Mapping[WorkerKey, ProcessTree]:
        """Like `find`, for processes that were read already."""
        self._update_assignments(processes)
        self._accepted_pid_files = dict(self._pid_file_holders(processes))
        return self._trees(processes)

    def _update_assignments(self, processes: Mapping[int, Process]) -> None:
        settled_until = (self._clock() - YOUNG_SECONDS) * TICKS_PER_SECOND
        before = self._processes
        for pid in self._assignments.keys() - processes.keys():
            self._forget(pid)
        # most of thousands are unchanged: skipped without a Python step for each
        same = map(operator.is_, processes.values(), map(before.get, processes))
        changed = compress(processes, map(operator.not_, same))
        for pid in self._to_recheck.union(changed):
            process, was = processes[pid], before.get(pid)
            assignment = self._assignments.get(pid)
            if assignment is None and was is not None:
                if (was.identity, was.exec_mark) == (process.identity, process.exec_mark):
                    continue  # still belongs to no worker
                assignment = _Assignment(was, was.exec_mark, settled=True)
            assignment = self._assign(process, assignment, settled_until)
            self._forget(pid)
            if not assignment.settled or assignment.process is not process:
                self._to_recheck.add(pid)
                self._assignments[pid] = assignment
            elif assignment.claims:
                self._assignments[pid] = assignment
        self._processes = processes

    def _forget(self, pid: int) -> None:
        self._assignments.pop(pid, None)
        self._to_recheck.discard(pid)

    def _assign(
        self, process: Process, before: _Assignment | None, settled_until: float
    ) -> _Assignment:
        """Returns the worker of a process, given the earlier decision for its pid."""
        if process.kernel_thread or process.pid == self._own_pid:
            return _Assignment(process, process.exec_mark, settled=True)
        if before is not None and before.process.identity != process.identity:
            before = None
        # What is ending has no program any more, from the moment its memory is given back
        # (exit_mm in kernel/exit.c; of a large process that takes seconds): what it was counts.
        if before is not None and (
            (before.settled and before.exec_mark == process.exec_mark) or _is_ending(process)
        ):
            return before._replace(process=process)
        settled = process.identity.start_ticks <= settled_until
        claims = dict(self._claims(process))
        if before is None or claims.keys() == before.claims.keys() or self._is_unchanged(process):
            return _Assignment(process, process.exec_mark, settled, claims)
        return before

    def _claims(self, process: Process) -> Iterator[tuple[WorkerKey, WorkerShell | None]]:
        attributes = ProcessAttributes(process.pid, self._root)
        for key, selector in self._selectors.items():
            met = matches_selector(selector, attributes)
            if met:
                yield key, parse_worker_shell(selector, attributes.arguments or ())
            elif met is None and key not in self._unreadable and self._is_unchanged(process):
                self._warn_unreadable(key, f"{self._root}/{process.pid}")

    def _is_unchanged(self, process: Process) -> bool:
        """Whether what was just read about a process is what it is, and not how it ends."""
        now = read_process(process.pid, self._root)
        return now is not None and now.identity == process.identity and not _is_ending(now)

    def _pid_file_holders(self, processes: Mapping[int, Process]) -> _Holders:
        unread: set[WorkerKey] = set()
        for key, selector in self._selectors.items():
            if selector.pid_file is None:
                continue
            last = self._accepted_pid_files.get(key)
            try:
                file = read_pid_file(selector.pid_file)
            except OSError:
                self._warn_unreadable(key, str(selector.pid_file))
                unread.add(key)
                if last is not None and last in {one.identity for one in processes.values()}:
                    yield key, last
                continue
            process = processes.get(file.pid) if file else None
            if file and process and not self._is_trusted(key, file, selector.pid_file):
                continue
            # once accepted it stays: a changed clock must not separate a worker from its file
            if file and process and (last == process.identity or file.matches(process)):
                yield key, process.identity
        self.unread = frozenset(unread)

    def _is_trusted(self, key: WorkerKey, file: PidFile, path: Path) -> bool:
        uid = read_uid(file.pid, self._root)
        trusted = uid is not None and file.is_trusted_for(uid)
        if trusted:
            self._untrusted.discard(key)
        elif uid is not None and key not in self._untrusted:
            self._untrusted.add(key)
            log.warning(
                "pid file ignored: an account other than root and that of the process can write it",
                extra={"run": key.run, "worker": key.worker, "path": str(path), "pid": file.pid},
            )
        return trusted

    def _warn_unreadable(self, key: WorkerKey, path: str) -> None:
        if key not in self._unreadable:
            self._unreadable.add(key)
            log.warning(
                "worker cannot be matched, file not readable",
                extra={"run": key.run, "worker": key.worker, "path": path},
            )

    def _trees(self, processes: Mapping[int, Process]) -> Mapping[WorkerKey, ProcessTree]:
        roots: dict[WorkerKey, list[Process]] = {key: [] for key in self._selectors}
        members: dict[WorkerKey, list[Process]] = {key: [] for key in self._selectors}
        shells: dict[WorkerKey, list[Process]] = {key: [] for key in self._selectors}
        ambiguous: dict[Identity, tuple[WorkerKey, ...]] = {}
        positions: dict[int, _TreePosition] = {}
        watched = self._descendants_of_claimed(processes)
        children = children_of(processes, watched)
        for pid in watched:
            start = processes[pid]
            above, path = _unplaced_ancestors(start, processes, positions)
            for process in path:
                claims = self._claims_under(above, process.identity)
                beside = {key for key in claims if self._only_runs(process, key, children)}
                for key in beside:
                    shells[key].append(process)
                claims = tuple(key for key in claims if key not in beside)
                if claims:
                    if claims[0] not in above.workers:
                        roots[claims[0]].append(process)
                    above = _TreePosition(claims[0], above.workers | {claims[0]})
                if len(claims) > 1:
                    ambiguous[process.identity] = claims
                if above.worker is not None:
                    members[above.worker].append(process)
                positions[process.pid] = above
        self._report(ambiguous)
        self.watched = frozenset(watched)
        return {
            key: ProcessTree(tuple(roots[key]), tuple(members[key]), tuple(shells[key]))
            for key in self._selectors
        }

    def _only_runs(
        self, process: Process, key: WorkerKey, children: Mapping[int, Sequence[Process]]
    ) -> bool:
        """Whether a process that matches is a shell, and the worker is below it or has ended.

        False as soon as something unknown runs below it: that may be the worker.
        """
        if (shell := self._assignments[process.pid].claims[key]) is None:
            return False
        if shell.asked:
            return any(map(shell.asks_for, self._command_lines(key)))
        below = [child for child in children.get(process.pid, ()) if child.alive]
        if not below:
            return shell.is_past_worker(None)
        for child in below:
            assignment = self._assignments.get(child.pid)
            if assignment is not None and key in assignment.claims:
                if assignment.claims[key] and not self._only_runs(child, key, children):
                    return False
            elif not shell.is_past_worker(read_command_line(child.pid, self._root) or ()):
                return False
        return True

    def _command_lines(self, key: WorkerKey) -> Iterator[Sequence[str]]:
        """Yields the command lines of what matches, runs and is no client of a service."""
        for pid, (process, _, _, claims) in self._assignments.items():
            shell = claims.get(key)
            if key in claims and process.alive and not (shell and shell.asked):
                yield read_command_line(pid, self._root) or ()

    def _descendants_of_claimed(self, processes: Mapping[int, Process]) -> list[int]:
        """The pids of whatever a selector matches and of all below it, in the table's order."""
        claimed = [pid for pid, one in self._assignments.items() if one.claims]
        if not claimed:
            return []
        found = descendants(processes, claimed) | set(claimed)
        return list(filter(found.__contains__, processes))

    def _claims_under(self, above: _TreePosition, identity: Identity) -> tuple[WorkerKey, ...]:
        """The workers whose selectors match the process, all conditions considered."""
        assignment = self._assignments.get(identity.pid)
        if assignment is None or not assignment.claims:
            return ()
        claims: list[WorkerKey] = []
        overridden: set[WorkerKey] = set()
        for key in assignment.claims:
            selector = self._selectors[key]
            if selector.pid_file is not None and self._accepted_pid_files.get(key) != identity:
                continue
            if selector.descendant_of is not None:
                ancestor = WorkerKey(key.run, selector.descendant_of)
                if ancestor not in above.workers:
                    continue
                overridden.add(ancestor)
            claims.append(key)
        return tuple(key for key in claims if key not in overridden)

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


def _unplaced_ancestors(
    process: Process, processes: Mapping[int, Process], positions: Mapping[int, _TreePosition]
) -> tuple[_TreePosition, list[Process]]:
    """What stands above, and the line from there down to `process` that is not placed yet."""
    path: list[Process] = []
    step: Process | None = process
    while step is not None and step.pid not in positions and step not in path:
        path.append(step)
        step = parent(step, processes)
    above = _OUTSIDE if step is None else positions.get(step.pid, _OUTSIDE)
    return above, path[::-1]


@dataclass(frozen=True, slots=True)
class WorkerLiveness:
    """Whether a worker lives, for those who judge by that."""

    key: WorkerKey
    started: float | None
    """Start of its oldest living process (unix seconds); None while none lives."""
    finished: bool
    looked_at: float = 0.0
    """When it was observed (unix seconds)."""
    exit_code: int | None = None
    """Exit code of the last process that ended, as in a shell; None while unknown."""
    exit_at: float | None = None
    """When that end was noticed (unix seconds)."""
    unconfirmed: bool = False
    """Whether its selector may be wrong, so that none found does not mean that none lives."""


def count_live_roots(tree: ProcessTree) -> int:
    """How many processes of a worker live, children not counted."""
    return sum(root.alive for root in tree.roots)


def oldest_root_start(tree: ProcessTree) -> float | None:
    """When the oldest living process of a worker started (unix seconds); None where none lives."""
    living = (root.identity for root in tree.roots if root.alive)
    return min(map(start_timestamp, living), default=None)
