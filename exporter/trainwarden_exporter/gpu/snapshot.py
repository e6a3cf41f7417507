"""One-shot inspection of the GPUs and their holders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainwarden_exporter.gpu.config import GpuConfig
from trainwarden_exporter.gpu.driver import Driver, DriverReading
from trainwarden_exporter.gpu.holders import HolderSearch, Survey
from trainwarden_exporter.gpu.nvml_library import Nvml
from trainwarden_exporter.gpu.pci import count_expected
from trainwarden_exporter.processes.config import RunWorkers, workers_by_key
from trainwarden_exporter.processes.matching import Matcher, WorkerKey
from trainwarden_exporter.processes.procfs import PROC, Process, read_processes


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    """The GPUs and their holders at one moment."""

    driver: DriverReading
    survey: Survey = field(default_factory=Survey)
    expected: int = 0
    running: tuple[tuple[WorkerKey, Process], ...] = ()
    """Running processes of configured workers."""
    undecided: frozenset[WorkerKey] = frozenset()
    """Workers with processes whose membership could not be decided."""


TakeGpuSnapshot = Callable[[GpuConfig, Sequence[RunWorkers]], GpuSnapshot]


def take_gpu_snapshot(config: GpuConfig, runs: Sequence[RunWorkers]) -> GpuSnapshot:
    """Inspects once. Blocks as long as the driver does."""
    selectors = {key: worker.match for key, worker in workers_by_key(runs).items()}
    matcher = Matcher(selectors)
    search = HolderSearch(
        device_root=config.device_root,
        protected=config.protected,
        users=[one.user for one in selectors.values()],
    )
    processes = read_processes()
    trees = matcher.assign(processes)
    session = Driver(Nvml())
    driver = session.read()
    session.close()
    version = driver.versions.driver if driver.versions else ""
    survey = search.find(processes, trees, driver.gpus, driver_version=version)
    expected = config.expected
    if expected is None:
        expected = max(count_expected(PROC, Path("/sys")), len(driver.gpus) + len(driver.lost))
    running = tuple(
        (key, process) for key, tree in trees.items() for process in tree.roots if process.alive
    )
    return GpuSnapshot(driver, survey, expected, running, matcher.undecided)
