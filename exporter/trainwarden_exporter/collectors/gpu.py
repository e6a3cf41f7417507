"""Collects the GPUs: driver state, use by workers, and processes that should not hold them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from trainwarden_exporter.gpu import metrics
from trainwarden_exporter.gpu.config import GpuConfig
from trainwarden_exporter.gpu.device_files import read_device_files
from trainwarden_exporter.gpu.driver import STATES, Driver, DriverReading
from trainwarden_exporter.gpu.holders import Holder, HolderSearch, Survey
from trainwarden_exporter.gpu.metrics import Sample, gpu_samples
from trainwarden_exporter.gpu.model import NO_GPU, GpuKey, GpuReading
from trainwarden_exporter.gpu.nvml_library import Nvml
from trainwarden_exporter.gpu.pci import count_expected
from trainwarden_exporter.gpu.problem_metrics import GpuProblems
from trainwarden_exporter.gpu.xid_watcher import XidWatcher
from trainwarden_exporter.processes.config import RunWorkers, WorkerConfig, workers_by_key
from trainwarden_exporter.processes.matching import Matcher, WorkerKey
from trainwarden_exporter.processes.process_table import ProcessTable
from trainwarden_exporter.processes.procfs import PROC, Identity
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.scrape.collector import Collector, Family

log = logging.getLogger(__name__)

WORK_SHARE = 0.05
"""Share of the time for which a worker that computes executes kernels at least."""


class GpuCollector(Collector):
    """Observes the GPUs through the driver and their users through /proc.

    All driver calls run in this collector's one thread, so that a hanging call affects no other
    collector; only the XID watcher has another thread.
    """

    name = "gpu"
    metrics = metrics.METRICS

    def __init__(
        self,
        config: GpuConfig,
        runs: Sequence[RunWorkers] = (),
        *,
        xid_watcher: XidWatcher | None = None,
        nvml: Nvml | None = None,
        root: Path = PROC,
        sys: Path = Path("/sys"),
        table: ProcessTable | None = None,
    ) -> None:
        """`table` is the process table at `root`, if shared with other collectors."""
        nvml = nvml or Nvml()
        self._config = config
        self._workers = workers_by_key(runs)
        self._table = table or ProcessTable(root)
        self._matcher = Matcher(
            {key: w.match for key, w in self._workers.items()}, root=root, table=self._table
        )
        self._xid_watcher = xid_watcher or XidWatcher(nvml.subscribe)
        self._driver = Driver(nvml, self._xid_watcher)
        self._holder_search = HolderSearch(
            device_root=config.device_root,
            protected=config.protected,
            root=root,
            describe_workers=False,
            users=[one.match.user for one in self._workers.values()],
        )
        self._problems = GpuProblems()
        self._reported_orphans: Mapping[Identity, Holder] = {}
        self._state = "absent"
        self._computing: frozenset[WorkerKey] = frozenset()
        self._root = root
        self._sys = sys

    def take_over_from(self, predecessor: Self) -> None:
        """Continues with the driver, the XID watcher, GPUs and accounts of `predecessor`."""
        self._driver, self._xid_watcher = predecessor._driver, predecessor._xid_watcher
        self._problems = predecessor._problems
        self._holder_search.accounts.add(predecessor._holder_search.accounts)
        self._reported_orphans, self._state = predecessor._reported_orphans, predecessor._state

    def collect(self) -> Iterable[Family]:
        # Read before the driver call, so that a reused pid in its answer is noticed.
        processes = self._table.read(self._pids_to_refresh()) if self._driver_present() else {}
        reading = self._driver.read()
        self._log_state(reading)
        survey = self._holder_search.find(
            processes,
            self._matcher.assign(processes) if self._workers else {},
            reading.gpus,
            driver_version=reading.versions.driver if reading.versions else "",
        )
        orphans = survey.orphans if self._workers else ()
        self.artifacts = (*orphans, *survey.observers, *survey.in_use) if self._workers else ()
        self._log_orphans(orphans)
        samples = tuple(self._samples(reading, survey))
        self._xid_watcher.update_users(
            [
                (GpuKey(*labels[3:]), labels[:3])
                for metric, labels, _ in samples
                if metric == metrics.WORKER_MEMORY
            ]
        )
        self._computing = frozenset(
            WorkerKey(*labels[:2])
            for metric, labels, ratio in samples
            if metric == metrics.WORKER_UTILIZATION and ratio > WORK_SHARE
        )
        problems = self._problems.samples(samples, shared=self._config.shared)
        return self.families((*samples, *problems))

    def is_computing(self, worker: WorkerKey) -> bool:
        """Whether `worker` executed kernels at the last scrape."""
        return worker in self._computing

    def _pids_to_refresh(self) -> frozenset[int]:
        """Returns the pids whose details are exported."""
        return self._matcher.watched.union(identity.pid for identity in self._reported_orphans)

    def _driver_present(self) -> bool:
        return self._state == "ok" or bool(read_device_files(self._config.device_root))

    def _samples(self, reading: DriverReading, survey: Survey) -> Iterator[Sample]:
        yield from ((metrics.DRIVER_STATE, (state,), state == reading.state) for state in STATES)
        expected = self._expected(reading)
        if reading.state == "absent" and not expected:
            return  # host without GPUs
        yield metrics.EXPECTED, (), expected
        yield metrics.FOUND, (), len(reading.gpus)
        yield metrics.SHARED, (), self._config.shared
        if reading.versions is not None:
            versions = reading.versions
            yield metrics.DRIVER_INFO, (versions.driver, versions.cuda, versions.nvml), 1
        yield from ((metrics.UP, key, 0) for key in reading.lost)
        for gpu in reading.gpus:
            yield from gpu_samples(gpu)
            if gpu.processes is not None:
                yield metrics.UNMAPPED, gpu.key, survey.unmapped.get(gpu.key, 0)
        yield metrics.UNREADABLE, (), survey.unreadable
        if self._workers:
            yield from worker_gpu_samples(self._workers, reading.gpus, survey.holders)
            yield from orphan_samples([gpu.key for gpu in reading.gpus], survey)

    def _expected(self, reading: DriverReading) -> int:
        if self._config.expected is not None:
            return self._config.expected
        return max(count_expected(self._root, self._sys), len(reading.gpus) + len(reading.lost))

    def _log_state(self, reading: DriverReading) -> None:
        if reading.state != self._state:
            level = logging.WARNING if reading.state in ("failed", "absent") else logging.INFO
            facts = {"state": reading.state, "reason": reading.reason, "gpus": len(reading.gpus)}
            log.log(level, "GPU driver", extra=facts)
        self._state = reading.state

    def _log_orphans(self, orphans: Iterable[Holder]) -> None:
        now = {holder.process.identity: holder for holder in orphans}
        for holder in now.values():
            if holder.process.identity not in self._reported_orphans:
                log.warning("GPU held by a process of no worker", extra=_facts(holder))
        for identity, holder in self._reported_orphans.items():
            if identity not in now:
                log.info("GPU no longer held by a process of no worker", extra=_facts(holder))
        self._reported_orphans = now


def worker_gpu_samples(
    workers: Mapping[WorkerKey, WorkerConfig], gpus: Iterable[GpuReading], holders: Iterable[Holder]
) -> Iterator[Sample]:
    """Yields the GPU use of each worker; omits sums with an unknown part."""
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
    """Yields the orphans and observers of each GPU and of the driver alone; 0 for none."""
    known = (*gpus, NO_GPU)
    for key, theirs in _group_by_gpu(known, survey.observers).items():
        yield metrics.OBSERVERS, key, len(theirs)
    for key, theirs in _group_by_gpu(known, survey.in_use).items():
        yield metrics.IN_USE, key, len(theirs)
    for key, theirs in _group_by_gpu(known, survey.orphans).items():
        yield metrics.ORPHANS, key, len(theirs)
        yield metrics.ORPHANS_UNLISTED, key, sum(1 for holder in theirs if not holder.listed)
        if key != NO_GPU:
            yield metrics.ORPHAN_MEMORY, key, sum(holder.listed.get(key) or 0 for holder in theirs)


def _group_by_gpu(
    gpus: Iterable[GpuKey], holders: Iterable[Holder]
) -> Mapping[GpuKey, Sequence[Holder]]:
    holders_by_gpu: dict[GpuKey, list[Holder]] = {key: [] for key in gpus}
    for holder in holders:
        for key in holder.gpus:
            holders_by_gpu.setdefault(key, []).append(holder)
    return holders_by_gpu


def _facts(holder: Holder) -> dict[str, object]:
    return {
        "pid": holder.process.pid,
        "owner": holder.owner,
        "started": round(start_timestamp(holder.process.identity)),
        "gpus": ",".join(key.gpu for key in holder.gpus),
        "listed": bool(holder.listed),
        "command": holder.shown[:200],
    }
