"""Recent starts and restarts of each worker, kept across restarts of the exporter."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Self

from trainwarden_exporter.processes import restart_loop
from trainwarden_exporter.processes.matching import ProcessTree, WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.runtime.state_file import StateFile

StartsByWorker = dict[str, dict[str, float]]
"""Start times in Unix seconds, by worker and process."""


def start_log_path(state_folder: Path | None) -> Path | None:
    return None if state_folder is None else state_folder / "worker-starts.json"


class StartLog:
    """Recent starts of workers, stored in the file `path`.

    A process counts once by its identity, even after the clock is set or its root has ended.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = StateFile[StartsByWorker](path, StartsByWorker, empty={})
        self._members: dict[WorkerKey, frozenset[Identity]] = {}

    def take_over_from(self, predecessor: Self) -> None:
        self._members = predecessor._members
        self._file.save(predecessor._file.value)

    def record(
        self,
        trees: Mapping[WorkerKey, ProcessTree],
        now: float,
        harmless_ends: Mapping[WorkerKey, Collection[Identity]] | None = None,
        counted_since: Mapping[WorkerKey, float] | None = None,
    ) -> None:
        """Adds the starts in `trees` at `now` (Unix seconds); drops all other workers.

        A process that ended successfully, or that an operator stopped, is part of no loop: the
        starts of `harmless_ends`, and those before `counted_since` (Unix seconds), are dropped.
        """
        ends, since = harmless_ends or {}, counted_since or {}
        log: StartsByWorker = {}
        for key, tree in trees.items():
            known = self._updated_starts(key, tree, now, ends.get(key, ()))
            first = since.get(key, 0.0)
            log[worker_id(key)] = {one: start for one, start in known.items() if start >= first}
        self._file.save(log)
        for key in self._members.keys() - trees.keys():
            del self._members[key]

    def recent(self, key: WorkerKey) -> tuple[float, ...]:
        """Returns the recent starts of a worker, sorted."""
        return tuple(sorted(self._file.value.get(worker_id(key), {}).values()))

    def _updated_starts(
        self, key: WorkerKey, tree: ProcessTree, now: float, harmless_ends: Collection[Identity]
    ) -> dict[str, float]:
        left_behind = self._members.get(key, frozenset())
        roots = {root.identity for root in tree.roots}
        self._members[key] = frozenset(member.identity for member in tree.members) - roots
        known = dict(self._file.value.get(worker_id(key), {}))
        for root in tree.roots:
            if root.alive and root.identity not in left_behind:
                known.setdefault(_process_id(root.identity), start_timestamp(root.identity))
        for ended in harmless_ends:
            known.pop(_process_id(ended), None)
        kept = frozenset(restart_loop.recent_starts(known.values(), now))
        return {process: start for process, start in known.items() if start in kept}


def worker_id(key: WorkerKey) -> str:
    return f"{key.run}/{key.worker}"


def _process_id(identity: Identity) -> str:
    return f"{identity.pid}/{identity.start_ticks}"


RestartsByWorker = dict[str, list[float]]
"""Times of observed replacements in Unix seconds, by worker; omits workers without any."""


class RestartLog:
    """Recent restarts of workers, stored in the file `path`.

    A counter would not suffice: it restarts at 0 with the exporter, so a loop that outlasts the
    exporter would look like a few restarts.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = StateFile[RestartsByWorker](path, RestartsByWorker, empty={})
        self._counted: dict[WorkerKey, int] = {}

    def take_over_from(self, predecessor: Self) -> None:
        self._counted = predecessor._counted
        self._file.save(predecessor._file.value)

    def record(
        self,
        counts: Mapping[WorkerKey, int],
        now: float,
        counted_since: Mapping[WorkerKey, float] | None = None,
    ) -> None:
        """Adds the increase of the counts at `now`; drops restarts before `counted_since`.

        Both are in Unix seconds. The counts start at 0 with the exporter. Drops all other workers.
        """
        log: RestartsByWorker = {}
        since = counted_since or {}
        for key, count in counts.items():
            new = max(0, count - self._counted.get(key, 0))
            known = [*self._file.value.get(worker_id(key), ()), *[now] * new]
            known = [one for one in known if one >= since.get(key, 0.0)]
            if known and (kept := list(restart_loop.recent_starts(known, now))):
                log[worker_id(key)] = kept
        self._counted = dict(counts)
        self._file.save(log)

    def recent(self, key: WorkerKey) -> int:
        return len(self._file.value.get(worker_id(key), ()))
