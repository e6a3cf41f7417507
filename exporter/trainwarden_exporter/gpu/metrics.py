"""The metrics of GPUs, and the samples that one reading of the driver makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from trainwarden_exporter.collector import Metric
from trainwarden_exporter.gpu.nvmldevice import COMPUTE_MODES
from trainwarden_exporter.gpu.reading import GpuReading, MigInstance, NvLink

Sample = tuple[Metric, tuple[str, ...], float]


def _metric(name: str, kind: Literal["gauge", "counter"], text: str, *labels: str) -> Metric:
    return Metric(f"trainwarden_{name}", kind, text, labels)


def _gpu(name: str, text: str, *more: str) -> Metric:
    return _metric(f"gpu_{name}", "gauge", text, "gpu", "uuid", *more)


def _gpu_counter(name: str, text: str, *more: str) -> Metric:
    return _metric(f"gpu_{name}", "counter", text, "gpu", "uuid", *more)


def _mig(name: str, text: str) -> Metric:
    return _gpu(name, text, "mig_uuid", "gpu_instance", "compute_instance", "name")


def _worker(name: str, text: str) -> Metric:
    labels = ("run", "worker", "role", "gpu", "uuid")
    return _metric(f"worker_gpu_{name}", "gauge", text, *labels)


DRIVER_STATE = _metric("gpu_driver_state", "gauge", "1 for the state the driver is in.", "state")
DRIVER_INFO = _metric(
    "gpu_driver_info",
    "gauge",
    "Always 1; its labels are the versions of the driver, of its CUDA and of its library.",
    *("driver_version", "cuda_version", "nvml_version"),
)
EXPECTED = _metric("gpu_devices_expected", "gauge", "GPUs that should be there.")
FOUND = _metric("gpu_devices_found", "gauge", "GPUs that the driver has and that answer.")
SHARED = _metric(
    "gpu_shared_expected", "gauge", "Whether processes may share a GPU, as configured."
)
UP = _gpu("up", "Whether the GPU answers; 0 for one that was there and has fallen off the bus.")
INFO = _gpu("info", "Always 1; its labels say what the GPU is.", "name", "pci_bus_id")
FAILURES = _gpu("read_failures", "Questions that the GPU answered with an error, this time.")
UTILIZATION = _gpu("utilization_ratio", "Share of the last sample period in which it computed.")
MEMORY_UTILIZATION = _gpu("memory_utilization_ratio", "The same, in which its memory was used.")
MEMORY_TOTAL = _gpu("memory_total_bytes", "Memory of the GPU.")
MEMORY_USED = _gpu("memory_used_bytes", "Memory in use; old drivers count the reserved too.")
MEMORY_FREE = _gpu("memory_free_bytes", "Memory that can be had.")
MEMORY_RESERVED = _gpu("memory_reserved_bytes", "Memory that the driver keeps for itself.")
TEMPERATURE = _gpu("temperature_celsius", "Temperature, by place.", "sensor")
SLOWDOWN = _gpu("temperature_slowdown_celsius", "Temperature at which the hardware slows down.")
POWER = _gpu("power_watts", "Power drawn.")
POWER_LIMIT = _gpu("power_limit_watts", "Power that may be drawn.")
ENERGY = _gpu_counter("energy_joules_total", "Energy used since the driver was loaded.")
CLOCK = _gpu("clock_hertz", "Clock rate now.", "clock")
THROTTLE = _gpu("throttle_active", "Whether the clocks are held down now, by reason.", "reason")
ECC = _gpu_counter(
    "ecc_errors_total",
    "Memory errors since the driver was loaded (volatile) or ever (aggregate).",
    *("severity", "scope"),
)
RETIRED = _gpu("retired_pages", "Pages of memory taken out of use (before Ampere).", "cause")
RETIRED_PENDING = _gpu("retired_pages_pending", "Whether pages wait for a reset to be retired.")
REMAPPED = _gpu("remapped_rows", "Rows of memory that were replaced, by their errors.", "severity")
REMAP_PENDING = _gpu("row_remap_pending", "Whether rows wait for a reset to be replaced.")
REMAP_FAILED = _gpu("row_remap_failed", "Whether a row could not be replaced: the GPU is worn out.")
PCIE_REPLAYS = _gpu_counter("pcie_replays_total", "Packets that PCIe had to send again.")
PCIE_GENERATION = _gpu("pcie_link_generation", "PCIe generation now; low when idle is normal.")
PCIE_MAX_GENERATION = _gpu("pcie_link_max_generation", "PCIe generation that GPU and slot can do.")
PCIE_WIDTH = _gpu("pcie_link_width", "PCIe lanes in use.")
PCIE_MAX_WIDTH = _gpu("pcie_link_max_width", "PCIe lanes that GPU and slot have.")
LINK_UP = _gpu("nvlink_up", "Whether the NVLink is active.", "link")
LINK_ERRORS = _gpu_counter("nvlink_errors_total", "Errors of an NVLink, by kind.", "link", "kind")
COMPUTE_MODE = _gpu("compute_mode", "1 for the compute mode the GPU is in.", "mode")
PERSISTENCE = _gpu("persistence_mode", "Whether the driver stays loaded while nobody uses the GPU.")
MIG_MODE = _gpu("mig_mode", "Whether the GPU is divided into MIG instances.")
MIG_USED = _mig("mig_memory_used_bytes", "Memory of a MIG instance that is in use.")
MIG_TOTAL = _mig("mig_memory_total_bytes", "Memory of a MIG instance.")
PROCESSES = _gpu("processes", "Processes that the driver lists.")
UNMAPPED = _gpu(
    "processes_unmapped", "Of these, those that cannot be found: of another pid namespace, or gone."
)
WORKER_MEMORY = _worker("memory_bytes", "GPU memory of the worker, children counted.")
WORKER_UTILIZATION = _worker("utilization_ratio", "Share of time in which the worker computed.")
ORPHANS = _gpu(
    "orphan_holders",
    "Processes that hold the GPU and belong to no worker; those known to hold only the driver have"
    " no gpu. Absent where no worker is configured.",
)
OBSERVERS = _gpu(
    "observers",
    "Processes of no worker that only look at the GPU, as monitors do: the driver does not list"
    " them, and they have not open what every CUDA program opens.",
)
ORPHAN_MEMORY = _gpu("orphan_memory_bytes", "GPU memory of orphan holders, as the driver lists it.")
ORPHANS_UNLISTED = _gpu(
    "orphan_holders_unlisted", "Orphan holders that the driver does not list anywhere."
)
UNREADABLE = _metric(
    "gpu_holders_unreadable_processes",
    "gauge",
    "Processes that may not be looked into: whether they hold a GPU is not known.",
)
TROUBLE = _gpu(
    "trouble",
    "What is wrong with the GPU, only while it is, and 0 for two minutes after: how many hold it as"
    " orphans, how many uncorrected memory errors there are since the driver was loaded, else 1.",
    "trouble",
)

METRICS = (
    *(DRIVER_STATE, DRIVER_INFO, EXPECTED, FOUND, SHARED, UP, INFO, FAILURES),
    *(UTILIZATION, MEMORY_UTILIZATION, MEMORY_TOTAL, MEMORY_USED, MEMORY_FREE, MEMORY_RESERVED),
    *(TEMPERATURE, SLOWDOWN, POWER, POWER_LIMIT, ENERGY, CLOCK, THROTTLE),
    *(ECC, RETIRED, RETIRED_PENDING, REMAPPED, REMAP_PENDING, REMAP_FAILED),
    *(PCIE_REPLAYS, PCIE_GENERATION, PCIE_MAX_GENERATION, PCIE_WIDTH, PCIE_MAX_WIDTH),
    *(LINK_UP, LINK_ERRORS, COMPUTE_MODE, PERSISTENCE, MIG_MODE, MIG_USED, MIG_TOTAL),
    *(PROCESSES, UNMAPPED, WORKER_MEMORY, WORKER_UTILIZATION),
    *(ORPHANS, ORPHAN_MEMORY, ORPHANS_UNLISTED, OBSERVERS, UNREADABLE, TROUBLE),
)


def gpu_samples(gpu: GpuReading) -> Iterator[Sample]:
    """What the driver says of one GPU; nothing for what it does not say."""
    labels = tuple(gpu.key)
    yield UP, labels, 1
    yield INFO, (*labels, gpu.name, gpu.pci_bus_id), 1
    for metric, value in _plain(gpu):
        if value is not None:
            yield metric, labels, value
    for metric, more, number in _divided(gpu):
        yield metric, (*labels, *more), number


def _plain(gpu: GpuReading) -> Iterator[tuple[Metric, float | None]]:
    yield FAILURES, len(gpu.failures)
    yield UTILIZATION, gpu.utilization_ratio
    yield MEMORY_UTILIZATION, gpu.memory_utilization_ratio
    if gpu.memory is not None:
        yield MEMORY_TOTAL, gpu.memory.total
        yield MEMORY_USED, gpu.memory.used
        yield MEMORY_FREE, gpu.memory.free
        yield MEMORY_RESERVED, gpu.memory.reserved
    yield SLOWDOWN, gpu.slowdown_celsius
    yield POWER, gpu.power_watts
    yield POWER_LIMIT, gpu.power_limit_watts
    yield ENERGY, gpu.energy_joules
    yield RETIRED_PENDING, gpu.retired_pages_pending
    if gpu.remapping is not None:
        yield REMAP_PENDING, gpu.remapping.pending
        yield REMAP_FAILED, gpu.remapping.failed
    yield PCIE_REPLAYS, gpu.pcie_replays
    yield PCIE_GENERATION, gpu.pcie_generation
    yield PCIE_MAX_GENERATION, gpu.pcie_max_generation
    yield PCIE_WIDTH, gpu.pcie_width
    yield PCIE_MAX_WIDTH, gpu.pcie_max_width
    yield PERSISTENCE, gpu.persistence_mode
    yield MIG_MODE, gpu.mig_mode
    yield PROCESSES, None if gpu.processes is None else len(gpu.processes)


def _divided(gpu: GpuReading) -> Iterator[Sample]:
    yield from ((TEMPERATURE, (sensor,), value) for sensor, value in gpu.temperatures.items())
    yield from ((CLOCK, (clock,), value) for clock, value in gpu.clocks_hertz.items())
    yield from ((THROTTLE, (reason,), value) for reason, value in gpu.throttling.items())
    yield from ((ECC, labels, value) for labels, value in gpu.ecc_errors.items())
    yield from ((RETIRED, (cause,), value) for cause, value in gpu.retired_pages.items())
    if gpu.remapping is not None:
        yield REMAPPED, ("corrected",), gpu.remapping.corrected
        yield REMAPPED, ("uncorrected",), gpu.remapping.uncorrected
    if gpu.compute_mode is not None:
        for mode in COMPUTE_MODES.values():
            yield COMPUTE_MODE, (mode,), mode == gpu.compute_mode
    yield from _links(gpu.nvlinks)
    yield from _mig_samples(gpu.mig)


def _links(links: Iterable[NvLink]) -> Iterator[Sample]:
    for link in links:
        yield LINK_UP, (str(link.link),), link.up
        for kind, count in link.errors.items():
            yield LINK_ERRORS, (str(link.link), kind), count


def _mig_samples(instances: Iterable[MigInstance]) -> Iterator[Sample]:
    for one in instances:
        if one.memory is not None:
            labels = (one.uuid, one.gpu_instance, one.compute_instance, one.name)
            yield MIG_USED, labels, one.memory.used
            yield MIG_TOTAL, labels, one.memory.total
