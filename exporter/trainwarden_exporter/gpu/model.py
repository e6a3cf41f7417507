"""State of the GPUs at one moment, in base units; None for unavailable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class GpuKey(NamedTuple):
    """Labels of a GPU: its current index and its permanent identity."""

    gpu: str
    uuid: str


NO_GPU = GpuKey("", "")
"""For a process that holds the driver, but no known GPU."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of the driver, of its CUDA and of the library."""

    driver: str = ""
    cuda: str = ""
    nvml: str = ""


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Bytes. `used` includes `reserved` if that is unknown."""

    total: int
    used: int
    free: int
    reserved: int | None = None


@dataclass(frozen=True, slots=True)
class NvLink:
    """One link, with `errors` by kind."""

    link: int
    up: bool
    errors: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG instance of a GPU."""

    uuid: str
    gpu_instance: str
    compute_instance: str
    name: str
    memory: GpuMemory | None


class ListedProcess(NamedTuple):
    """A process that the driver lists on a GPU.

    `pid` is the driver's number, possibly of another namespace; `memory_bytes` is None if
    unavailable.
    """

    pid: int
    memory_bytes: int | None


class UtilizationSample(NamedTuple):
    """Share of time a process executed kernels, up to `timestamp` (driver clock, µs)."""

    pid: int
    ratio: float
    timestamp: int


@dataclass(frozen=True, slots=True)
class Remapping:
    """Remapped memory rows (Ampere and later)."""

    corrected: int
    uncorrected: int
    pending: bool
    failed: bool


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU. `failures` names functions that failed with an error other than "not supported"."""

    key: GpuKey
    name: str = ""
    pci_bus_id: str = ""
    minor: int | None = None
    """N of its device file /dev/nvidiaN."""

    utilization_ratio: float | None = None
    memory_utilization_ratio: float | None = None
    memory: GpuMemory | None = None
    temperatures: Mapping[str, float] = field(default_factory=dict)
    slowdown_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules: float | None = None
    clocks_hertz: Mapping[str, float] = field(default_factory=dict)
    throttling: Mapping[str, bool] = field(default_factory=dict)
    ecc_errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By severity and scope."""

    retired_pages: Mapping[str, int] = field(default_factory=dict)
    retired_pages_pending: bool | None = None
    remapping: Remapping | None = None
    pcie_replays: int | None = None
    pcie_generation: int | None = None
    pcie_max_generation: int | None = None
    pcie_width: int | None = None
    pcie_max_width: int | None = None
    nvlinks: tuple[NvLink, ...] = ()
    compute_mode: str | None = None
    persistence_mode: bool | None = None
    mig_mode: bool | None = None
    mig: tuple[MigInstance, ...] = ()
    processes: tuple[ListedProcess, ...] | None = None
    samples: tuple[UtilizationSample, ...] = ()
    failures: tuple[str, ...] = ()
