"""The machine, or the container that stands for it: memory that is left, pressure, OOM kills.

Sources: /proc/meminfo, /proc/vmstat, /proc/stat and /proc/loadavg as in
Documentation/filesystems/proc.rst; pressure as in Documentation/accounting/psi.rst.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field

from trainwarden_exporter.collector import Collector, Family, Metric
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.memorycgroup import (
    Allowance,
    MemoryCgroup,
    find_memory_cgroup,
    parse_counts,
    read_allowance,
    read_oom_kills,
    read_optional,
    read_stall,
)
from trainwarden_exporter.processes.procfs import PROC
from trainwarden_exporter.units import Bytes, LocalPath
from trainwarden_exporter.yamlfile import Section

log = logging.getLogger(__name__)

T = TypeVar("T")
Sample = tuple[Metric, tuple[str, ...], float | None]

CGROUP_ROOT = Path("/sys/fs/cgroup")
_FLOOR_SHARE = 0.08
_FLOOR_BYTES = 8 << 30
_CPU_LINE = re.compile(r"cpu\d+ ")


class HostConfig(Section):
    memory_available_floor: Annotated[Bytes, Field(ge=0)] | None = None
    """Memory that should stay available; 8 % of all, at most 8 GiB, when not given."""

    cgroup: LocalPath | None = None
    """The cgroup the training runs in; the root of what is mounted when not given, which in a
    container is the container's own."""


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"trainwarden_{name}", "gauge", text, labels)


BOOT = _gauge("host_boot_timestamp_seconds", "When the machine booted.")
LOAD = _gauge("host_load_average", "Tasks that run or wait for a disk, on average.", "period")
CPUS = _gauge("host_cpus", "Processors that are online.")
TOTAL = _gauge("memory_total_bytes", "Memory of the machine.")
AVAILABLE = _gauge("memory_available_bytes", "Memory of the machine that can still be had.")
SWAP_TOTAL = _gauge("memory_swap_total_bytes", "Swap of the machine.")
SWAP_FREE = _gauge("memory_swap_free_bytes", "Swap of the machine that is not used.")
CGROUP_LIMIT = _gauge("memory_cgroup_limit_bytes", "Memory the cgroup may hold.")
CGROUP_WORKING_SET = _gauge(
    "memory_cgroup_working_set_bytes", "Memory the cgroup holds, less file pages not in use."
)
EFFECTIVE_TOTAL = _gauge(
    "memory_effective_total_bytes", "Memory that may be had: the machine's or the cgroup's limit."
)
EFFECTIVE_AVAILABLE = _gauge(
    "memory_effective_available_bytes", "Memory that can still be had within machine and cgroup."
)
FLOOR = _gauge("memory_available_floor_bytes", "Memory that should stay available.")
SHORTFALL = _gauge(
    "memory_shortfall_bytes", "What is available less than the floor, only while it is."
)
STALLED = Metric(
    "trainwarden_memory_pressure_stalled_seconds_total",
    "counter",
    "Time in which some or all tasks waited for memory.",
    ("scope", "kind"),
)
OOM_KILLS = Metric(
    "trainwarden_memory_oom_kills_total",
    "counter",
    "Processes that the kernel killed for want of memory.",
    ("scope",),
)


@dataclass(frozen=True, slots=True)
class Memory:
    """/proc/meminfo in bytes; None for a line that this kernel does not write."""

    total: int
    available: int
    swap_total: int | None
    swap_free: int | None


class HostCollector(Collector):
    """Sees how much room is left, on the machine and in the cgroup whose limit kills first."""

    name = "host"
    metrics = (
        BOOT,
        LOAD,
        CPUS,
        TOTAL,
        AVAILABLE,
        SWAP_TOTAL,
        SWAP_FREE,
        CGROUP_LIMIT,
        CGROUP_WORKING_SET,
        EFFECTIVE_TOTAL,
        EFFECTIVE_AVAILABLE,
        FLOOR,
        SHORTFALL,
        STALLED,
        OOM_KILLS,
    )

    def __init__(
        self,
        config: HostConfig,
        *,
        proc: Path = PROC,
        cgroup_root: Path = CGROUP_ROOT,
    ) -> None:
        self._config = config
        self._proc = proc
        self._cgroup_root = cgroup_root
        self._missing = False

    def collect(self) -> Iterable[Family]:
        cgroup = self._find_cgroup()
        families = {metric: metric.family() for metric in self.metrics}
        for metric, labels, value in (*self._machine(), *self._memory(cgroup), *self._harm(cgroup)):
            if value is not None:
                families[metric].add_metric(labels, value)
        return families.values()

    def _find_cgroup(self) -> MemoryCgroup | None:
        cgroup = find_memory_cgroup(self._cgroup_root, self._config.cgroup)
        missing = cgroup is None and self._config.cgroup is not None
        if missing and not self._missing:
            # no failure: the cgroup of a service comes and goes with it
            log.warning("no memory cgroup there", extra={"cgroup": str(self._config.cgroup)})
        self._missing = missing
        return cgroup

    def _machine(self) -> Iterator[Sample]:
        boot, cpus = _read(self._proc / "stat", parse_boot_and_cpus)
        yield BOOT, (), boot
        yield CPUS, (), cpus
        loads = _read(self._proc / "loadavg", parse_load)
        yield from ((LOAD, (period,), load) for period, load in loads.items())

    def _memory(self, cgroup: MemoryCgroup | None) -> Iterator[Sample]:
        memory = _read(self._proc / "meminfo", parse_memory)
        allowance = None if cgroup is None else read_allowance(cgroup)
        total, available = effective(memory, allowance)
        floor = _floor(self._config, total)
        yield TOTAL, (), memory.total
        yield AVAILABLE, (), memory.available
        yield SWAP_TOTAL, (), memory.swap_total
        yield SWAP_FREE, (), memory.swap_free
        if allowance is not None:
            yield CGROUP_LIMIT, (), allowance.limit_bytes
            yield CGROUP_WORKING_SET, (), allowance.working_set_bytes
        yield EFFECTIVE_TOTAL, (), total
        yield EFFECTIVE_AVAILABLE, (), available
        yield FLOOR, (), floor
        if available < floor:
            yield SHORTFALL, (), floor - available

    def _harm(self, cgroup: MemoryCgroup | None) -> Iterator[Sample]:
        kills = read_optional(self._proc / "vmstat", parse_counts) or {}
        yield OOM_KILLS, ("host",), kills.get("oom_kill")
        pressure = {"host": self._proc / "pressure" / "memory"}
        if cgroup is not None:
            yield OOM_KILLS, ("cgroup",), read_oom_kills(cgroup)
            pressure["cgroup"] = cgroup.folder / "memory.pressure"
        for scope, path in pressure.items():
            if (stall := read_stall(path)) is not None:
                yield STALLED, (scope, "some"), stall.some
                yield STALLED, (scope, "full"), stall.full


def effective(memory: Memory, allowance: Allowance | None) -> tuple[int, int]:
    """Total and available bytes within both the machine and the cgroup: the smaller of each."""
    if allowance is None:
        return memory.total, memory.available
    return (
        min(memory.total, allowance.limit_bytes),
        min(memory.available, allowance.available_bytes),
    )


def read_room(
    config: HostConfig, *, proc: Path = PROC, cgroup_root: Path = CGROUP_ROOT
) -> tuple[int, int, int]:
    """Total and available bytes, as `effective`, and those that should stay available.

    Raises CollectError.
    """
    cgroup = find_memory_cgroup(cgroup_root, config.cgroup)
    memory = _read(proc / "meminfo", parse_memory)
    total, available = effective(memory, None if cgroup is None else read_allowance(cgroup))
    return total, available, _floor(config, total)


def _floor(config: HostConfig, total: int) -> int:
    asked = config.memory_available_floor
    return default_floor(total) if asked is None else asked


def default_floor(total: int) -> int:
    """Bytes that should stay available of `total` when nobody said."""
    return min(int(total * _FLOOR_SHARE), _FLOOR_BYTES)


def parse_memory(text: str) -> Memory:
    """A /proc/meminfo, whose kB are KiB."""
    pairs = (line.partition(":") for line in text.splitlines())
    values: Mapping[str, int] = {
        name: int(value.split()[0]) * 1024
        for name, _, value in pairs
        if name in ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
    }
    return Memory(
        total=values["MemTotal"],
        available=values["MemAvailable"],
        swap_total=values.get("SwapTotal"),
        swap_free=values.get("SwapFree"),
    )


def parse_load(text: str) -> dict[str, float]:
    """A /proc/loadavg: load by period."""
    return {
        period: float(value)
        for period, value in zip(("1m", "5m", "15m"), text.split()[:3], strict=True)
    }


def parse_boot_and_cpus(text: str) -> tuple[int, int]:
    """A /proc/stat: the boot time in unix seconds, and the number of processors online."""
    lines = text.splitlines()
    boot = next((line.split()[1] for line in lines if line.startswith("btime ")), "no btime")
    return int(boot), sum(1 for line in lines if _CPU_LINE.match(line))


def _read(path: Path, parse: Callable[[str], T]) -> T:
    content = read_optional(path, parse)
    if content is None:
        raise CollectError(f"{path} is missing or may not be read")
    return content
