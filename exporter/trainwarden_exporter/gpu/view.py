"""One look at the GPUs and at who holds them, for whoever needs it only once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from trainwarden_exporter.config import Config
from trainwarden_exporter.gpu.driver import Driver, Sight
from trainwarden_exporter.gpu.holders import HolderSearch, Survey
from trainwarden_exporter.gpu.nvml import Nvml
from trainwarden_exporter.gpu.pcidevices import count_expected
from trainwarden_exporter.processes.matching import Matcher, WorkerKey
from trainwarden_exporter.processes.procfs import PROC, Process, read_processes


@dataclass(frozen=True, slots=True)
class GpuView:
    """The GPUs, and who holds them, at one moment."""

    sight: Sight
    survey: Survey = field(default_factory=Survey)
    expected: int = 0
    running: tuple[tuple[WorkerKey, Process], ...] = ()
    """Living processes of configured workers."""
    undecided: frozenset[WorkerKey] = frozenset()
    """Workers of which it could not be told for every process whether it is theirs."""


def look_at_gpus(config: Config, *, root: Path = PROC, sys: Path = Path("/sys")) -> GpuView:
    """Look once. It blocks for as long as the driver does."""
    matcher = Matcher(
        {
            WorkerKey(run.name, worker.name): worker.match
            for run in config.runs
            for worker in run.workers
        },
        root=root,
    )
    search = HolderSearch(
        device_root=config.gpu.device_root, protected=config.gpu.protected, root=root
    )
    processes = read_processes(root)
    trees = matcher.sort(processes)
    driver = Driver(Nvml())
    sight = driver.look()
    driver.close()
    survey = search.find(
        processes,
        trees,
        sight.gpus,
        driver_version=sight.versions.driver if sight.versions else "",
    )
    expected = config.gpu.expected
    if expected is None:
        expected = max(count_expected(root, sys), len(sight.gpus) + len(sight.lost))
    running = tuple(
        (key, process) for key, tree in trees.items() for process in tree.roots if process.alive
    )
    return GpuView(sight, survey, expected, running, matcher.undecided)
