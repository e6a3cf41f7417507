"""What the remediator sees by itself where the exporter cannot be asked: memory and workers."""

from __future__ import annotations

from pathlib import Path

from trainwarden_exporter.collectors.host import CGROUP_ROOT, read_room
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.memorycgroup import find_memory_cgroup, read_stall
from trainwarden_exporter.processes.alive import oldest_start
from trainwarden_exporter.processes.matching import Matcher, Tree, WorkerKey
from trainwarden_exporter.processes.procfs import PROC, read_resident_bytes
from trainwarden_remediator.config import Setup
from trainwarden_remediator.exceptions import UnknownError
from trainwarden_remediator.sight import Sight, WorkerSight


class OwnEyes:
    """Reads /proc and the cgroup as the exporter does, by the exporter's own file and readers.

    It knows nothing of runs, servers, disks or logs, nor which worker has finished: enough to tell
    that memory is short, and who holds it, and for nothing else. Checkpoints are for OwnSaves.
    """

    def __init__(self, setup: Setup, *, proc: Path = PROC, cgroup_root: Path = CGROUP_ROOT) -> None:
        self._watched = setup.watched
        self._matcher = Matcher(setup.selectors, root=proc)
        self._proc = proc
        self._cgroup_root = cgroup_root

    def look(self) -> Sight:
        """What there is now; blocks. Raises UnknownError."""
        host = self._watched.host
        try:
            _, available, floor = read_room(host, proc=self._proc, cgroup_root=self._cgroup_root)
            trees = self._matcher.find()
            stalled = self._read_stalled()
        except CollectError as error:
            raise UnknownError(f"cannot see by itself: {error}") from error
        workers = {
            WorkerKey(run.name, worker.name): self._worker(
                trees[WorkerKey(run.name, worker.name)],
                worker.expected,
                worker.memory_limit,
                worker.age_limit,
            )
            for run in self._watched.runs
            for worker in run.workers
        }
        return Sight(workers, available, floor, memory_stalled=stalled)

    def _worker(
        self, tree: Tree, expected: int, memory_limit: int | None, age_limit: float | None
    ) -> WorkerSight:
        living = [process for process in tree.members if process.alive]
        return WorkerSight(
            processes=sum(root.alive for root in tree.roots),
            expected=expected,
            resident_bytes=sum(
                read_resident_bytes(process.pid, self._proc) or process.resident_bytes
                for process in living
            ),
            finished=False,
            started_at=oldest_start(tree),
            memory_limit_bytes=memory_limit,
            age_limit_seconds=age_limit,
        )

    def _read_stalled(self) -> dict[tuple[str, str], float]:
        paths = {"host": self._proc / "pressure" / "memory"}
        cgroup = find_memory_cgroup(self._cgroup_root, self._watched.host.cgroup)
        if cgroup is not None:
            paths["cgroup"] = cgroup.folder / "memory.pressure"
        found: dict[tuple[str, str], float] = {}
        for scope, path in paths.items():
            if (stall := read_stall(path)) is not None:
                found[scope, "some"] = stall.some
                if stall.full is not None:
                    found[scope, "full"] = stall.full
        return found
