"""Collects memory, swap, load, pressure and OOM kills of the host and its cgroup.

Sources: psutil; /proc/vmstat as in Documentation/filesystems/proc.rst and pressure as in
Documentation/accounting/psi.rst, which psutil does not read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Self

import psutil

from trainwarden_exporter.host.cgroup_memory import (
    MemoryCgroup,
    find_memory_cgroup,
    parse_counts,
    read_cgroup_usage,
    read_oom_kills,
    read_optional,
    read_pressure,
)
from trainwarden_exporter.host.config import CGROUP_ROOT, HostConfig
from trainwarden_exporter.host.memory import available_floor, call_psutil, effective_memory
from trainwarden_exporter.processes.procfs import PROC
from trainwarden_exporter.scrape.collector import Collector, Family, MetricTable, Sample

log = logging.getLogger(__name__)
_table = MetricTable("trainwarden_")
_gauge, _counter = _table.gauge, _table.counter

BOOT = _gauge("host_boot_timestamp_seconds", "Boot time of the machine.")
LOAD = _gauge(
    "host_load_average", "Load average: running tasks and tasks in uninterruptible sleep.", "period"
)
CPUS = _gauge("host_cpus", "Online CPUs.")
PRICE = _gauge("host_price_per_hour", "Price of the host for an hour, as configured.")
GPU_PRICE = _gauge(
    "host_price_per_gpu_hour", "Price of one GPU of the host for an hour, as configured."
)
TOTAL = _gauge("memory_total_bytes", "Total memory of the machine.")
AVAILABLE = _gauge("memory_available_bytes", "Available memory of the machine.")
SWAP_TOTAL = _gauge("memory_swap_total_bytes", "Total swap of the machine.")
SWAP_FREE = _gauge("memory_swap_free_bytes", "Unused swap of the machine.")
CGROUP_LIMIT = _gauge("memory_cgroup_limit_bytes", "Memory limit of the cgroup.")
CGROUP_WORKING_SET = _gauge(
    "memory_cgroup_working_set_bytes", "Memory usage of the cgroup, less inactive file pages."
)
EFFECTIVE_TOTAL = _gauge(
    "memory_effective_total_bytes", "Total memory within the limits of machine and cgroup."
)
EFFECTIVE_AVAILABLE = _gauge(
    "memory_effective_available_bytes", "Available memory within the limits of machine and cgroup."
)
FLOOR = _gauge(
    "memory_available_floor_bytes",
    "Minimum available memory, as configured or derived from the total.",
)
SHORTFALL = _gauge(
    "memory_shortfall_bytes", "Available memory below the floor; only present while below."
)
STALLED = _counter(
    "memory_pressure_stalled_seconds_total",
    "Time during which some or all tasks waited for memory.",
    "scope",
    "kind",
)
OOM_KILLS = _counter("memory_oom_kills_total", "Processes killed by the OOM killer.", "scope")
LAST_OOM_KILL = _gauge(
    "memory_last_oom_kill_timestamp_seconds",
    "Time at which the last kill by the OOM killer was observed; absent before the first.",
    "scope",
)


class HostCollector(Collector):
    """Observes the available memory of the machine and of the cgroup with the lowest limit."""

    name = "host"
    metrics = _table.metrics

    def __init__(
        self,
        config: HostConfig,
        *,
        proc: Path = PROC,
        cgroup_root: Path = CGROUP_ROOT,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._now = now
        self._oom_kills: dict[str, int] = {}
        self._oom_killed_at: dict[str, float] = {}
        self._proc = proc
        self._cgroup_root = cgroup_root
        self._missing = False

    def take_over_from(self, predecessor: Self) -> None:
        self._oom_kills = predecessor._oom_kills
        self._oom_killed_at = predecessor._oom_killed_at

    def collect(self) -> Iterable[Family]:
        cgroup = self._find_cgroup()
        return self.families(
            (
                *self._machine_samples(),
                *self._memory_samples(cgroup),
                *self._pressure_samples(cgroup),
            )
        )

    def _find_cgroup(self) -> MemoryCgroup | None:
        cgroup = find_memory_cgroup(self._cgroup_root, self._config.cgroup)
        missing = cgroup is None and self._config.cgroup is not None
        if missing and not self._missing:
            # Not a failure: the cgroup of a service comes and goes with it.
            log.warning("no memory cgroup", extra={"cgroup": str(self._config.cgroup)})
        self._missing = missing
        return cgroup

    def _machine_samples(self) -> Iterator[Sample]:
        yield BOOT, (), call_psutil(psutil.boot_time)
        yield CPUS, (), call_psutil(psutil.cpu_count)
        yield PRICE, (), self._config.price_per_hour
        yield GPU_PRICE, (), self._config.price_per_gpu_hour
        loads = call_psutil(psutil.getloadavg)
        for period, load in zip(("1m", "5m", "15m"), loads, strict=True):
            yield LOAD, (period,), load

    def _memory_samples(self, cgroup: MemoryCgroup | None) -> Iterator[Sample]:
        memory = call_psutil(psutil.virtual_memory)
        swap = call_psutil(psutil.swap_memory)
        cgroup_usage = None if cgroup is None else read_cgroup_usage(cgroup)
        total, available = effective_memory(memory.total, memory.available, cgroup_usage)
        floor = available_floor(self._config, total)
        yield TOTAL, (), memory.total
        yield AVAILABLE, (), memory.available
        yield SWAP_TOTAL, (), swap.total
        yield SWAP_FREE, (), swap.free
        if cgroup_usage is not None:
            yield CGROUP_LIMIT, (), cgroup_usage.limit_bytes
            yield CGROUP_WORKING_SET, (), cgroup_usage.working_set_bytes
        yield EFFECTIVE_TOTAL, (), total
        yield EFFECTIVE_AVAILABLE, (), available
        yield FLOOR, (), floor
        if available < floor:
            yield SHORTFALL, (), floor - available

    def _pressure_samples(self, cgroup: MemoryCgroup | None) -> Iterator[Sample]:
        kills = read_optional(self._proc / "vmstat", parse_counts) or {}
        yield from self._oom_samples("host", kills.get("oom_kill"))
        pressure_files = {"host": self._proc / "pressure" / "memory"}
        if cgroup is not None:
            yield from self._oom_samples("cgroup", read_oom_kills(cgroup))
            pressure_files["cgroup"] = cgroup.folder / "memory.pressure"
        for scope, path in pressure_files.items():
            if (pressure := read_pressure(path)) is not None:
                yield STALLED, (scope, "some"), pressure.some
                yield STALLED, (scope, "full"), pressure.full

    def _oom_samples(self, scope: str, kills: int | None) -> Iterator[Sample]:
        yield OOM_KILLS, (scope,), kills
        if kills is not None:
            if kills > self._oom_kills.get(scope, kills):
                self._oom_killed_at[scope] = self._now()
            self._oom_kills[scope] = kills
        yield LAST_OOM_KILL, (scope,), self._oom_killed_at.get(scope)
