"""The GPUs: what the driver says of them, who uses them, and who holds them and should not."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field

from trainwarden_exporter.collector import Collector, Family
from trainwarden_exporter.gpu import metrics
from trainwarden_exporter.gpu.devicefiles import read_device_files
from trainwarden_exporter.gpu.driver import STATES, Driver, Sight
from trainwarden_exporter.gpu.holders import Holder, HolderSearch, Survey
from trainwarden_exporter.gpu.metrics import Sample, gpu_samples
from trainwarden_exporter.gpu.nvml import Nvml
from trainwarden_exporter.gpu.pcidevices import count_expected
from trainwarden_exporter.gpu.reading import NO_GPU, GpuKey, GpuReading
from trainwarden_exporter.gpu.trouble import Troubles
from trainwarden_exporter.gpu.xidwatch import XidWatch
from trainwarden_exporter.processes.config import WorkerConfig, WorkersOfRun
from trainwarden_exporter.processes.matching import Matcher, WorkerKey
from trainwarden_exporter.processes.procfs import PROC, Identity, start_timestamp
from trainwarden_exporter.processes.selector import ChoosingPattern
from trainwarden_exporter.processes.table import ProcessTable
from trainwarden_exporter.units import LocalPath
from trainwarden_exporter.yamlfile import Section

log = logging.getLogger(__name__)


class GpuConfig(Section):
    expected: Annotated[int, Field(ge=0)] | None = None
    """GPUs that should be there; those that driver or PCI bus show when not given."""

    shared: bool = True
    """Whether processes are meant to share a GPU; then an exclusive compute mode is a fault."""

    protected: tuple[ChoosingPattern, ...] = ()
    """Regular expressions searched in command lines: what matches is no orphan, though it holds a
    GPU and is no worker. Displays, NVIDIA's services and known observers need not be named."""

    device_root: LocalPath = Path("/dev")
    """Where the device files of the driver are."""


class GpuCollector(Collector):
    """Sees the GPUs through the driver, and their users through /proc.

    All calls of the driver are made in this collector's one thread, so that one which hangs costs
    this collector and no other; only the watch for XIDs has a thread beside it.
    """

    name = "gpu"
    metrics = metrics.METRICS

    def __init__(
        self,
        config: GpuConfig,
        runs: Sequence[WorkersOfRun] = (),
        *,
        watch: XidWatch | None = None,
        nvml: Nvml | None = None,
        root: Path = PROC,
        sys: Path = Path("/sys"),
        table: ProcessTable | None = None,
    ) -> None:
        """`table`: of the processes at `root`, where it is shared with others."""
        nvml = nvml or Nvml()
        self._config = config
        self._workers = {
            WorkerKey(run.name, worker.name): worker for run in runs for worker in run.workers
        }
        self._table = table or ProcessTable(root)
        self._matcher = Matcher(
            {key: w.match for key, w in self._workers.items()}, root=root, table=self._table
        )
        self._watch = watch or XidWatch(nvml.subscribe)
        self._driver = Driver(nvml, self._watch)
        self._search = HolderSearch(
            device_root=config.device_root,
            protected=config.protected,
            root=root,
            name_workers=False,
        )
        self._troubles = Troubles()
        self._told: Mapping[Identity, Holder] = {}
        self._state = "absent"
        self._root = root
        self._sys = sys

    def adopt(self, predecessor: Self) -> None:
        """Go on with the driver as `predecessor` had it, with its watch and the GPUs it knows."""
        self._driver, self._watch = predecessor._driver, predecessor._watch
        self._troubles = predecessor._troubles
        self._told, self._state = predecessor._told, predecessor._state

    def collect(self) -> Iterable[Family]:
        # read before the driver is asked, so that a pid it names cannot have passed on unnoticed
        processes = self._table.read(self._fresh()) if self._may_be_held() else {}
        sight = self._driver.look()
        self._tell_state(sight)
        survey = self._search.find(
            processes,
            self._matcher.sort(processes) if self._workers else {},
            sight.gpus,
            driver_version=sight.versions.driver if sight.versions else "",
        )
        orphans = survey.orphans if self._workers else ()
        self.notes = (*orphans, *survey.observers) if self._workers else ()
        self._tell_orphans(orphans)
        families = {metric: metric.family() for metric in self.metrics}
        samples = tuple(self._samples(sight, survey))
        self._watch.note_users(
            [
                (GpuKey(*of[3:]), of[:3])
                for metric, of, _ in samples
                if metric == metrics.WORKER_MEMORY
            ]
        )
        troubles = self._troubles.samples(samples, shared=self._config.shared)
        for metric, labels, value in (*samples, *troubles):
            families[metric].add_metric(labels, value)
        return families.values()

    def _fresh(self) -> frozenset[int]:
        """The pids of whom more is told than that they are there."""
        return self._matcher.watched.union(identity.pid for identity in self._told)

    def _may_be_held(self) -> bool:
        return self._state == "ok" or bool(read_device_files(self._config.device_root))

    def _samples(self, sight: Sight, survey: Survey) -> Iterator[Sample]:
        yield from ((metrics.DRIVER_STATE, (state,), state == sight.state) for state in STATES)
        expected = self._expected(sight)
        if sight.state == "absent" and not expected:
            return  # a box without GPUs: there is nothing to say of them
        yield metrics.EXPECTED, (), expected
        yield metrics.FOUND, (), len(sight.gpus)
        yield metrics.SHARED, (), self._config.shared
        if sight.versions is not None:
            versions = sight.versions
            yield metrics.DRIVER_INFO, (versions.driver, versions.cuda, versions.nvml), 1
        yield from ((metrics.UP, key, 0) for key in sight.lost)
        for gpu in sight.gpus:
            yield from gpu_samples(gpu)
            if gpu.processes is not None:
                yield metrics.UNMAPPED, gpu.key, survey.unmapped.get(gpu.key, 0)
        yield metrics.UNREADABLE, (), survey.unreadable
        if self._workers:
            yield from worker_samples(self._workers, sight.gpus, survey.holders)
            yield from orphan_samples([gpu.key for gpu in sight.gpus], survey)

    def _expected(self, sight: Sight) -> int:
        if self._config.expected is not None:
            return self._config.expected
        return max(count_expected(self._root, self._sys), len(sight.gpus) + len(sight.lost))

    def _tell_state(self, sight: Sight) -> None:
        if sight.state != self._state:
            level = logging.WARNING if sight.state in ("failed", "absent") else logging.INFO
            facts = {"state": sight.state, "reason": sight.reason, "gpus": len(sight.gpus)}
            log.log(level, "GPU driver", extra=facts)
        self._state = sight.state

    def _tell_orphans(self, orphans: Iterable[Holder]) -> None:
        now = {holder.process.identity: holder for holder in orphans}
        for holder in now.values():
            if holder.process.identity not in self._told:
                log.warning("GPU held by a process of no worker", extra=_facts(holder))
        for identity, holder in self._told.items():
            if identity not in now:
                log.info("GPU no longer held by a process of no worker", extra=_facts(holder))
        self._told = now


def worker_samples(
    workers: Mapping[WorkerKey, WorkerConfig],
    gpus: Iterable[GpuReading],
    holders: Iterable[Holder],
) -> Iterator[Sample]:
    """What each worker has of each GPU; nothing for a sum of which a part is not known."""
    holders = tuple(holders)
    for gpu in gpus:
        users: dict[WorkerKey, list[Holder]] = {}
        for holder in holders:
            if holder.worker is not None and gpu.key in holder.listed:
                users.setdefault(holder.worker, []).append(holder)
        ratios = {sample.pid: sample.ratio for sample in gpu.samples}
        for key, theirs in users.items():
            labels = (*key, workers[key].role, *gpu.key)
            amounts = [holder.listed[gpu.key] for holder in theirs]
            known = [amount for amount in amounts if amount is not None]
            if len(known) == len(amounts):
                yield metrics.WORKER_MEMORY, labels, sum(known)
            shares = [ratios[h.process.pid] for h in theirs if h.process.pid in ratios]
            if shares:
                yield metrics.WORKER_UTILIZATION, labels, min(sum(shares), 1)


def orphan_samples(gpus: Iterable[GpuKey], survey: Survey) -> Iterator[Sample]:
    """The orphans and the observers of each GPU, and of the driver alone; 0 for none."""
    known = (*gpus, NO_GPU)
    for key, theirs in _by_place(known, survey.observers).items():
        yield metrics.OBSERVERS, key, len(theirs)
    for key, theirs in _by_place(known, survey.orphans).items():
        yield metrics.ORPHANS, key, len(theirs)
        yield metrics.ORPHANS_UNLISTED, key, sum(1 for holder in theirs if not holder.listed)
        if key != NO_GPU:
            yield metrics.ORPHAN_MEMORY, key, sum(holder.listed.get(key) or 0 for holder in theirs)


def _by_place(
    gpus: Iterable[GpuKey], holders: Iterable[Holder]
) -> Mapping[GpuKey, Sequence[Holder]]:
    places: dict[GpuKey, list[Holder]] = {key: [] for key in gpus}
    for holder in holders:
        for key in holder.gpus:
            places.setdefault(key, []).append(holder)
    return places


def _facts(holder: Holder) -> dict[str, object]:
    return {
        "pid": holder.process.pid,
        "owner": holder.owner,
        "started": round(start_timestamp(holder.process.identity)),
        "gpus": ",".join(key.gpu for key in holder.gpus),
        "listed": bool(holder.listed),
        "command": holder.command[:200],
    }
