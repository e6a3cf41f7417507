"""History of a worker: totals over all its processes, restarts and exits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trainwarden_exporter.processes.exit_status import (
    ExitWatcher,
    ReadExit,
    is_harmless_end,
    shell_code,
    status_name,
)
from trainwarden_exporter.processes.matching import ProcessTree
from trainwarden_exporter.processes.procfs import Identity, Process, Transfers
from trainwarden_exporter.processes.start_times import start_timestamp

_USUAL_STATUSES = ("0", "1", "SIGKILL", "SIGTERM", "unknown")
_NOTHING = Transfers(0, 0)


@dataclass(frozen=True, slots=True)
class CpuTotal:
    """Observed CPU seconds of all processes of a worker."""

    seconds: float = 0.0
    _last: Mapping[Identity, float] = field(default_factory=dict)

    def merge_observed(self, members: Iterable[Process]) -> CpuTotal:
        """Returns the total with the increase of `members`."""
        now = {process.identity: process.cpu_seconds for process in members}
        increase = sum(max(0.0, now[one] - self._last.get(one, 0.0)) for one in now)
        return CpuTotal(self.seconds + increase, now)


@dataclass(frozen=True, slots=True)
class TransferTotal:
    """Observed storage bytes of all processes of a worker.

    `readable` is False while no running process is readable.
    """

    moved: Transfers = _NOTHING
    readable: bool = True
    _last: Mapping[Identity, Transfers] = field(default_factory=dict)
    _parents: Mapping[Identity, int] = field(default_factory=dict)

    def merge_observed(
        self, members: Iterable[Process], transfers: Mapping[Identity, Transfers] | None
    ) -> TransferTotal:
        """Returns the total with the increase of `members`; None if no process was readable."""
        parents = {process.identity: process.parent_pid for process in members}
        gone = self._last.keys() - parents.keys()
        kept = {one: last for one, last in self._last.items() if one not in gone}
        reaped = self._reaped_transfers(gone, parents) if gone else {}
        read, written = self.moved.read_bytes, self.moved.written_bytes
        for one, now in (transfers or {}).items():
            before, reaped_before = kept.get(one, _NOTHING), reaped.get(one, _NOTHING)
            read += _increase(before.read_bytes, now.read_bytes, reaped_before.read_bytes)
            written += _increase(
                before.written_bytes, now.written_bytes, reaped_before.written_bytes
            )
        return TransferTotal(
            moved=Transfers(read, written),
            readable=transfers is not None if parents else self.readable,
            _last={**kept, **(transfers or {})},
            _parents=parents,
        )

    def _reaped_transfers(
        self, all_gone: Iterable[Identity], present: Mapping[Identity, int]
    ) -> Mapping[Identity, Transfers]:
        """Returns the counted bytes of ended processes, by their nearest remaining ancestor.

        The kernel adds a child's numbers to those of its parent when the parent reaps it
        (wait_task_zombie in kernel/exit.c): they must not count twice.
        """
        by_pid = {one.pid: one for one in self._parents}
        reaped: dict[Identity, Transfers] = {}
        for gone in all_gone:
            ancestor = by_pid.get(self._parents[gone])
            while ancestor is not None and ancestor not in present:
                ancestor = by_pid.get(self._parents[ancestor])
            if ancestor is not None:
                so_far, more = reaped.get(ancestor, _NOTHING), self._last[gone]
                reaped[ancestor] = Transfers(
                    so_far.read_bytes + more.read_bytes, so_far.written_bytes + more.written_bytes
                )
        return reaped


def _increase(before: int, now: int, reaped_before: int) -> int:
    """Returns the increase, less the bytes of reaped children if the parent received them."""
    increase = max(0, now - before)
    return increase - reaped_before if increase >= reaped_before else increase


@dataclass(frozen=True, slots=True)
class RootHistory:
    """Starts and exits of a worker's roots, from one collection to the next.

    `exits` counts ended roots by `status_name`. `last_exit_code` is that of the last root that
    ended, as in a shell; None while unknown.
    """

    restarts: int = 0
    failure_restarts: int = 0
    """Restarts after an end that was neither successful nor by SIGINT; part of `restarts`."""
    harmless_ends: frozenset[Identity] = frozenset()
    """The roots whose last observed end was successful or by SIGINT."""
    exits: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(_USUAL_STATUSES, 0))
    last_exit_code: int | None = None
    last_exit_timestamp: float | None = None
    _living: frozenset[Identity] | None = None
    _members: frozenset[Identity] = frozenset()
    _exiting: frozenset[Identity] = frozenset()
    _unreplaced_roots: Mapping[Identity, int | None] = field(default_factory=dict)

    @property
    def awaiting_exit(self) -> frozenset[Identity]:
        """The ended processes whose exit status is not known yet."""
        return (self._living or frozenset()) | self._exiting

    @property
    def finished(self) -> bool:
        """Whether roots have ended, all with status 0, and were not replaced."""
        return (
            not self._living
            and bool(self._unreplaced_roots)
            and all(status == 0 for status in self._unreplaced_roots.values())
        )

    @property
    def unreplaced_statuses(self) -> tuple[int | None, ...]:
        """Wait statuses of the ended roots that were not replaced; None while unknown."""
        return tuple(self._unreplaced_roots.values())

    def merge_observed(
        self,
        tree: ProcessTree,
        exit_watcher: ExitWatcher,
        now: float,
        announced: ReadExit = lambda _: None,
        *,
        counted_since: float = 0.0,
    ) -> RootHistory:
        """Compares with the previous tree; `now` is in Unix seconds.

        The end of a process that started before `counted_since` (Unix seconds) is no failure.
        """
        living = frozenset(process.identity for process in tree.roots if process.alive)
        for identity in living:
            exit_watcher.watch(identity)
        members = frozenset(process.identity for process in tree.members)
        if not self._exiting and (living, members) == (self._living, self._members):
            return self
        before = living if self._living is None else self._living

        exits, unreplaced, exiting = dict(self.exits), dict(self._unreplaced_roots), set[Identity]()
        code, noticed = self.last_exit_code, self.last_exit_timestamp
        for identity in sorted((before - living) | self._exiting):
            process_exit = exit_watcher.process_exit(identity, announced(identity))
            if process_exit is None:
                continue  # it still runs, but no longer as a root of this worker
            if identity not in self._exiting:
                unreplaced[identity], noticed, code = None, now, None
            if process_exit.status is None and not process_exit.reaped:
                exiting.add(identity)
                continue
            if identity in unreplaced:
                unreplaced[identity] = process_exit.status
            status = status_name(process_exit.status)
            exits[status] = exits.get(status, 0) + 1
            code = None if process_exit.status is None else shell_code(process_exit.status)

        # an orphaned child that matches the selector does not replace a process
        newcomers = living - before - self._members
        # failed processes are replaced before finished ones
        replaced = sorted(unreplaced, key=lambda one: unreplaced[one] == 0)[: len(newcomers)]
        failed = sum(
            not is_harmless_end(unreplaced[one]) and start_timestamp(one) >= counted_since
            for one in replaced
        )
        return RootHistory(
            restarts=self.restarts + len(replaced),
            failure_restarts=self.failure_restarts + failed,
            harmless_ends=frozenset(one for one, end in unreplaced.items() if is_harmless_end(end)),
            exits=exits,
            last_exit_code=code,
            last_exit_timestamp=noticed,
            _living=living,
            _members=members,
            _exiting=frozenset(exiting),
            _unreplaced_roots={one: how for one, how in unreplaced.items() if one not in replaced},
        )


@dataclass(frozen=True, slots=True)
class WorkerHistory:
    cpu: CpuTotal = field(default_factory=CpuTotal)
    transfers: TransferTotal = field(default_factory=TransferTotal)
    roots: RootHistory = field(default_factory=RootHistory)

    def merge_observed(
        self,
        tree: ProcessTree,
        transfers: Mapping[Identity, Transfers] | None,
        exit_watcher: ExitWatcher,
        now: float,
        announced: ReadExit = lambda _: None,
        *,
        counted_since: float = 0.0,
    ) -> WorkerHistory:
        """Returns the history including `tree` at `now`; as `RootHistory.merge_observed`."""
        return WorkerHistory(
            cpu=self.cpu.merge_observed(tree.members),
            transfers=self.transfers.merge_observed(tree.members, transfers),
            roots=self.roots.merge_observed(
                *(tree, exit_watcher, now, announced), counted_since=counted_since
            ),
        )

    def with_failure(self, status: int, ended_at: float) -> WorkerHistory:
        """Returns this with an announced failure of a process that was never seen alive.

        `status` is its wait status, `ended_at` in Unix seconds.
        """
        seen_at = self.roots.last_exit_timestamp
        if seen_at is not None and seen_at >= ended_at:
            return self
        code = shell_code(status)
        roots = replace(self.roots, last_exit_code=code, last_exit_timestamp=ended_at)
        return replace(self, roots=roots)
