"""When the processes of each worker started of late, also as earlier lives of this program saw."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from trainwarden_exporter import starts
from trainwarden_exporter.processes.matching import Tree, WorkerKey
from trainwarden_exporter.processes.procfs import Identity, start_timestamp
from trainwarden_exporter.statefile import StateFile

Log = dict[str, dict[str, float]]
"""By worker, by process: when it started, in unix seconds."""


def start_log_path(state_folder: Path | None) -> Path | None:
    """Where the starts of workers are kept."""
    return None if state_folder is None else state_folder / "worker-starts.json"


class StartLog:
    """The recent starts of workers, kept in the file `path`.

    A process counts once, by its identity: not again when the clock is set, nor when a root leaves
    it behind.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = StateFile[Log](path, Log, empty={})
        self._members: dict[WorkerKey, frozenset[Identity]] = {}

    def adopt(self, predecessor: Self) -> None:
        """Go on with what `predecessor` remembers."""
        self._members = predecessor._members
        self._file.save(predecessor._file.value)

    def note(self, trees: Mapping[WorkerKey, Tree], now: float) -> None:
        """Add what `trees` show at `now`, in unix seconds; of other workers nothing is kept."""
        self._file.save({name(key): self._after(key, tree, now) for key, tree in trees.items()})
        for key in self._members.keys() - trees.keys():
            del self._members[key]

    def recent(self, key: WorkerKey) -> tuple[float, ...]:
        """The starts that are remembered of a worker, in order."""
        return tuple(sorted(self._file.value.get(name(key), {}).values()))

    def _after(self, key: WorkerKey, tree: Tree, now: float) -> dict[str, float]:
        left_behind = self._members.get(key, frozenset())
        roots = {root.identity for root in tree.roots}
        self._members[key] = frozenset(member.identity for member in tree.members) - roots
        known = dict(self._file.value.get(name(key), {}))
        for root in tree.roots:
            if root.alive and root.identity not in left_behind:
                known.setdefault(_name_of(root.identity), start_timestamp(root.identity))
        kept = frozenset(starts.recent(known.values(), now))
        return {process: start for process, start in known.items() if start in kept}


def name(key: WorkerKey) -> str:
    """What a worker is known by in the file."""
    return f"{key.run}/{key.worker}"


def _name_of(identity: Identity) -> str:
    return f"{identity.pid}/{identity.start_ticks}"
