"""What a worker has done so far: totals that outlive its processes, restarts and exits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trainwarden_exporter.processes.exits import ExitWatch, shell_code, status_name
from trainwarden_exporter.processes.matching import Tree
from trainwarden_exporter.processes.procfs import Identity, Process, Transfers

_USUAL_STATUSES = ("0", "1", "SIGKILL", "SIGTERM", "unknown")
_NOTHING = Transfers(0, 0)


@dataclass(frozen=True, slots=True)
class CpuTotal:
    """CPU seconds of all processes a worker has had, as far as they were seen."""

    seconds: float = 0.0
    _last: Mapping[Identity, float] = field(default_factory=dict)

    def after(self, members: Iterable[Process]) -> CpuTotal:
        """The total with what `members` used since the last time."""
        now = {process.identity: process.cpu_seconds for process in members}
        grown = sum(max(0.0, now[one] - self._last.get(one, 0.0)) for one in now)
        return CpuTotal(self.seconds + grown, now)


@dataclass(frozen=True, slots=True)
class TransferTotal:
    """Bytes that all processes a worker has had moved, as far as they were seen.

    `readable` is False while nothing of what runs could be read.
    """

    moved: Transfers = _NOTHING
    readable: bool = True
    _last: Mapping[Identity, Transfers] = field(default_factory=dict)
    _parents: Mapping[Identity, int] = field(default_factory=dict)

    def after(
        self, members: Iterable[Process], transfers: Mapping[Identity, Transfers] | None
    ) -> TransferTotal:
        """The total with what `members` moved since the last time; None: none could be read."""
        parents = {process.identity: process.parent_pid for process in members}
        gone = self._last.keys() - parents.keys()
        kept = {one: last for one, last in self._last.items() if one not in gone}
        bequests = self._bequests(gone, parents) if gone else {}
        read, written = self.moved.read_bytes, self.moved.written_bytes
        for one, now in (transfers or {}).items():
            before, bequest = kept.get(one, _NOTHING), bequests.get(one, _NOTHING)
            read += _growth(before.read_bytes, now.read_bytes, bequest.read_bytes)
            written += _growth(before.written_bytes, now.written_bytes, bequest.written_bytes)
        return TransferTotal(
            moved=Transfers(read, written),
            readable=transfers is not None if parents else self.readable,
            _last={**kept, **(transfers or {})},
            _parents=parents,
        )

    def _bequests(
        self, all_gone: Iterable[Identity], present: Mapping[Identity, int]
    ) -> Mapping[Identity, Transfers]:
        """What was counted of processes that are gone, by the nearest ancestor that is left.

        The kernel adds a child's numbers to its parent's when the parent reaps it
        (wait_task_zombie in kernel/exit.c): they must not count again.
        """
        by_pid = {one.pid: one for one in self._parents}
        bequests: dict[Identity, Transfers] = {}
        for gone in all_gone:
            heir = by_pid.get(self._parents[gone])
            while heir is not None and heir not in present:
                heir = by_pid.get(self._parents[heir])
            if heir is not None:
                so_far, more = bequests.get(heir, _NOTHING), self._last[gone]
                bequests[heir] = Transfers(
                    so_far.read_bytes + more.read_bytes, so_far.written_bytes + more.written_bytes
                )
        return bequests


def _growth(before: int, now: int, bequest: int) -> int:
    """How much more was moved; a parent that grew by less than its bequest did not receive it."""
    grown = max(0, now - before)
    return grown - bequest if grown >= bequest else grown


@dataclass(frozen=True, slots=True)
class Lives:
    """How the roots of a worker came and went, as seen from one collection to the next.

    `exits` counts ended roots by `status_name`. `last_exit_code` is that of the root whose end was
    noticed last, as a shell reports it, None while unknown.
    """

    restarts: int = 0
    exits: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(_USUAL_STATUSES, 0))
    last_exit_code: int | None = None
    last_exit_timestamp: float | None = None
    _living: frozenset[Identity] | None = None
    _members: frozenset[Identity] = frozenset()
    _dying: frozenset[Identity] = frozenset()
    _unreplaced: Mapping[Identity, int | None] = field(default_factory=dict)

    @property
    def watched(self) -> frozenset[Identity]:
        """The processes whose end is still to be learned."""
        return (self._living or frozenset()) | self._dying

    @property
    def finished(self) -> bool:
        """Whether roots have ended, all with status 0, and nothing took their place."""
        return (
            not self._living
            and bool(self._unreplaced)
            and all(status == 0 for status in self._unreplaced.values())
        )

    def after(self, tree: Tree, watch: ExitWatch, now: float) -> Lives:
        """Compare with the tree seen last; `now` is in unix seconds."""
        living = frozenset(process.identity for process in tree.roots if process.alive)
        for identity in living:
            watch.watch(identity)
        members = frozenset(process.identity for process in tree.members)
        if not self._dying and (living, members) == (self._living, self._members):
            return self
        before = living if self._living is None else self._living

        exits, unreplaced, dying = dict(self.exits), dict(self._unreplaced), set[Identity]()
        code, noticed = self.last_exit_code, self.last_exit_timestamp
        for identity in sorted((before - living) | self._dying):
            ending = watch.ending(identity)
            if ending is None:
                continue  # it runs on, but no more as a root of this worker
            if identity not in self._dying:
                unreplaced[identity], noticed, code = None, now, None
            if ending.status is None and not ending.reaped:
                dying.add(identity)
                continue
            if identity in unreplaced:
                unreplaced[identity] = ending.status
            status = status_name(ending.status)
            exits[status] = exits.get(status, 0) + 1
            code = None if ending.status is None else shell_code(ending.status)

        # a child that its root left behind, and that looks the same, takes nobody's place
        newcomers = living - before - self._members
        # whoever failed is replaced before whoever finished
        replaced = sorted(unreplaced, key=lambda one: unreplaced[one] == 0)[: len(newcomers)]
        return Lives(
            restarts=self.restarts + len(replaced),
            exits=exits,
            last_exit_code=code,
            last_exit_timestamp=noticed,
            _living=living,
            _members=members,
            _dying=frozenset(dying),
            _unreplaced={one: how for one, how in unreplaced.items() if one not in replaced},
        )


@dataclass(frozen=True, slots=True)
class History:
    """All that is remembered of one worker."""

    cpu: CpuTotal = field(default_factory=CpuTotal)
    transfers: TransferTotal = field(default_factory=TransferTotal)
    lives: Lives = field(default_factory=Lives)

    def after(
        self,
        tree: Tree,
        transfers: Mapping[Identity, Transfers] | None,
        watch: ExitWatch,
        now: float,
    ) -> History:
        """The history with what `tree` shows at `now`, in unix seconds."""
        return History(
            cpu=self.cpu.after(tree.members),
            transfers=self.transfers.after(tree.members, transfers),
            lives=self.lives.after(tree, watch, now),
        )
