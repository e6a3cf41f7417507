"""Local observation of memory and workers, for when the exporter does not respond.

Checkpoints are scanned in separate threads, so that a disk that hangs does not block the rest.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.host.cgroup_memory import find_memory_cgroup, read_pressure
from trainwarden_exporter.host.config import CGROUP_ROOT
from trainwarden_exporter.host.memory import read_available_memory
from trainwarden_exporter.processes.config import WorkerConfig, workers_by_key
from trainwarden_exporter.processes.matching import Matcher, ProcessTree, oldest_root_start
from trainwarden_exporter.processes.procfs import PROC
from trainwarden_exporter.processes.resource_usage import read_usage
from trainwarden_exporter.runtime.blocking_thread import SerialThread
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.observation.model import ExporterState, RunState, WorkerState

CHECKPOINT_TIMEOUT_SECONDS = 3.0
"""Seconds that a scan of checkpoint folders may take before their state counts as unknown."""

CHECKPOINT_THREADS = 4
"""Number of threads that scan checkpoints; each may hang without blocking the others."""

CheckpointStates = Mapping[str, RunState]
"""The checkpoint state of each run with checkpoints."""


@dataclass(frozen=True, slots=True)
class CheckpointObserver:
    """Observes the checkpoints of `runs`; `observe` blocks, and raises ObservationError."""

    runs: Collection[str]
    observe: Callable[[], CheckpointStates]


class LocalFallback:
    """Observes memory and workers in one thread, and checkpoints in others.

    Call `reconfigure` before the first observation. Raises NoThreadError if its threads cannot be
    started.
    """

    def __init__(self, thread_factory: Callable[[str], SerialThread]) -> None:
        # Started now, because a host under memory pressure may run out of threads.
        self._thread = thread_factory("observe the host")
        self._threads = [
            _CheckpointThread(thread_factory(f"observe checkpoints, {number}"))
            for number in range(CHECKPOINT_THREADS)
        ]

    def reconfigure(
        self,
        observe: Callable[[], ExporterState],
        checkpoint_observers: Sequence[CheckpointObserver],
    ) -> None:
        """Sets the observers; `observe` blocks, and raises ObservationError.

        There may be at most CHECKPOINT_THREADS `checkpoint_observers`.
        """
        self._observe = observe
        self._checkpoint_observers = checkpoint_observers

    async def observe_memory(self) -> ExporterState:
        """Returns memory and workers. Raises ObservationError."""
        try:
            return await self._thread.call(self._observe)
        except MemoryError as error:
            raise ObservationError("out of memory during local observation") from error

    async def observe_all(self) -> ExporterState:
        """Returns memory, workers, and the checkpoints on disks that respond.

        Raises ObservationError.
        """
        exporter = await self.observe_memory()
        asked = [
            (checkpoints.runs, thread.ask(checkpoints.observe))
            for checkpoints, thread in zip(self._checkpoint_observers, self._threads, strict=False)
        ]
        if asked:
            await asyncio.wait([answer for _, answer in asked], timeout=CHECKPOINT_TIMEOUT_SECONDS)
        known = {run: one for runs, answer in asked for run, one in _run_states(runs, answer)}
        return replace(exporter, runs=known)


class _CheckpointThread:
    """One thread that scans checkpoints; while a scan hangs, no second one starts."""

    def __init__(self, thread: SerialThread) -> None:
        self._thread = thread
        self._asked: asyncio.Future[CheckpointStates] | None = None

    def ask(self, observe: Callable[[], CheckpointStates]) -> asyncio.Future[CheckpointStates]:
        """Starts `observe`, or returns the future of the scan that is still running."""
        if self._asked is None or self._asked.done():
            self._asked = self._thread.call(observe)
            # Retrieves the exception of a late scan, which would otherwise be logged.
            self._asked.add_done_callback(lambda late: late.cancelled() or late.exception())
        return self._asked


def _run_states(
    runs: Collection[str], answer: asyncio.Future[CheckpointStates]
) -> Iterator[tuple[str, RunState]]:
    """Yields the checkpoint state of each of `runs`, or why it is unknown."""
    seen: CheckpointStates = {}
    why = "the disk of the checkpoints does not respond"
    if answer.done():
        try:
            # A run is missing if the scan started before a reload added it.
            seen, why = answer.result(), "not scanned yet"
        except (ObservationError, MemoryError) as error:
            why = str(error) or "out of memory while scanning checkpoints"
    for run in runs:
        yield run, seen.get(run, RunState(saves_unknown=why))


class LocalObserver:
    """Reads /proc and the cgroup with the exporter's configuration and readers.

    Observes only memory and worker processes: no progress of runs, servers, disks or logs, nor
    which worker has finished. Checkpoints: see LocalCheckpointObserver.
    """

    def __init__(self, setup: Setup, *, proc: Path = PROC, cgroup_root: Path = CGROUP_ROOT) -> None:
        self._exporter_config = setup.exporter_config
        self._matcher = Matcher(setup.selectors, root=proc)
        self._proc = proc
        self._cgroup_root = cgroup_root

    def observe(self) -> ExporterState:
        """Returns the current state; blocks. Raises ObservationError."""
        host = self._exporter_config.host
        try:
            _, available, floor = read_available_memory(host, cgroup_root=self._cgroup_root)
            trees = self._matcher.find()
            stalled = self._read_stalled()
        except CollectError as error:
            raise ObservationError(f"local observation failed: {error}") from error
        workers = {
            key: self._worker(trees[key], worker)
            for key, worker in workers_by_key(self._exporter_config.runs).items()
        }
        return ExporterState(workers, available, floor, memory_stalled=stalled)

    def _worker(self, tree: ProcessTree, worker: WorkerConfig) -> WorkerState:
        return WorkerState(
            processes=sum(root.alive for root in tree.roots),
            expected=worker.expected,
            memory_bytes=read_usage(
                tree, self._proc, doubtful_above=worker.memory_limit or math.inf
            ).memory_bytes,
            finished=False,
            started_at=oldest_root_start(tree),
            memory_limit_bytes=worker.memory_limit,
            age_limit_seconds=worker.age_limit,
        )

    def _read_stalled(self) -> dict[tuple[str, str], float]:
        paths = {"host": self._proc / "pressure" / "memory"}
        cgroup = find_memory_cgroup(self._cgroup_root, self._exporter_config.host.cgroup)
        if cgroup is not None:
            paths["cgroup"] = cgroup.folder / "memory.pressure"
        found: dict[tuple[str, str], float] = {}
        for scope, path in paths.items():
            if (pressure := read_pressure(path)) is not None:
                found[scope, "some"] = pressure.some
                if pressure.full is not None:
                    found[scope, "full"] = pressure.full
        return found
