"""Metrics of GPUs, and their samples from one reading of the driver."""

from __future__ import annotations

from collections.abc import Iterator

from trainwarden_exporter.gpu.model import GpuReading
from trainwarden_exporter.gpu.nvml_device import COMPUTE_MODES
from trainwarden_exporter.scrape.collector import Metric, MetricTable

Sample = tuple[Metric, tuple[str, ...], float]

_gauge = MetricTable("trainwarden_").gauge
_table = MetricTable("trainwarden_gpu_", "gpu", "uuid")
_gpu, _gpu_counter = _table.gauge, _table.counter
_mig = MetricTable(
    "trainwarden_gpu_", "gpu", "uuid", "mig_uuid", "gpu_instance", "compute_instance", "name"
).gauge
_worker = MetricTable("trainwarden_worker_gpu_", "run", "worker", "role", "gpu", "uuid").gauge

DRIVER_STATE = _gauge("gpu_driver_state", "1 for the current state of the driver.", "state")
DRIVER_INFO = _gauge(
    "gpu_driver_info",
    "Always 1; labels: versions of the driver, CUDA and the driver library.",
    *("driver_version", "cuda_version", "nvml_version"),
)
EXPECTED = _gauge("gpu_devices_expected", "Expected GPUs.")
FOUND = _gauge("gpu_devices_found", "GPUs that the driver lists and that respond.")
SHARED = _gauge("gpu_shared_expected", "Whether processes may share a GPU, as configured.")

UP = _gpu("up", "Whether the GPU responds; 0 for a GPU that has fallen off the bus.")
INFO = _gpu("info", "Always 1; labels describe the GPU.", "name", "pci_bus_id")
FAILURES = _gpu("read_failures", "Driver queries about the GPU that failed during this collection.")

UTILIZATION = _gpu(
    "utilization_ratio", "Share of the last sample period during which a kernel was executing."
)
MEMORY_UTILIZATION = _gpu(
    "memory_utilization_ratio",
    "Share of the last sample period during which memory was read or written.",
)
MEMORY_TOTAL = _gpu("memory_total_bytes", "Total memory of the GPU.")
MEMORY_USED = _gpu(
    "memory_used_bytes", "Memory in use; with old drivers including reserved memory."
)
MEMORY_FREE = _gpu("memory_free_bytes", "Free memory.")
MEMORY_RESERVED = _gpu("memory_reserved_bytes", "Memory reserved by the driver.")

TEMPERATURE = _gpu("temperature_celsius", "Temperature, by sensor.", "sensor")
SLOWDOWN = _gpu("temperature_slowdown_celsius", "Temperature at which the hardware slows down.")
POWER = _gpu("power_watts", "Current power draw.")
POWER_LIMIT = _gpu("power_limit_watts", "Power limit.")
ENERGY = _gpu_counter("energy_joules_total", "Energy used since the driver was loaded.")
CLOCK = _gpu("clock_hertz", "Current clock rate, by clock.", "clock")
THROTTLE = _gpu(
    "throttle_active", "Whether the clocks are currently throttled, by reason.", "reason"
)

ECC = _gpu_counter(
    "ecc_errors_total",
    "Memory errors since the driver was loaded (volatile) or ever (aggregate).",
    *("severity", "scope"),
)
RETIRED = _gpu("retired_pages", "Memory pages retired (before Ampere), by cause.", "cause")
RETIRED_PENDING = _gpu(
    "retired_pages_pending", "Whether memory pages will be retired at the next reset."
)
REMAPPED = _gpu(
    "remapped_rows", "Memory rows that were remapped, by severity of the error.", "severity"
)
REMAP_PENDING = _gpu("row_remap_pending", "Whether memory rows will be remapped at the next reset.")
REMAP_FAILED = _gpu("row_remap_failed", "Whether a row remap failed: the GPU needs replacement.")

PCIE_REPLAYS = _gpu_counter("pcie_replays_total", "PCIe packets that were sent again.")
PCIE_GENERATION = _gpu(
    "pcie_link_generation", "Current PCIe generation; a low value is normal while idle."
)
PCIE_MAX_GENERATION = _gpu("pcie_link_max_generation", "Maximum PCIe generation of GPU and slot.")
PCIE_WIDTH = _gpu("pcie_link_width", "Current PCIe lanes.")
PCIE_MAX_WIDTH = _gpu("pcie_link_max_width", "Maximum PCIe lanes of GPU and slot.")
LINK_UP = _gpu("nvlink_up", "Whether the NVLink is active.", "link")
LINK_ERRORS = _gpu_counter("nvlink_errors_total", "NVLink errors, by kind.", "link", "kind")

COMPUTE_MODE = _gpu("compute_mode", "1 for the current compute mode of the GPU.", "mode")
PERSISTENCE = _gpu(
    "persistence_mode",
    "Whether the driver stays loaded while the GPU is unused (persistence mode).",
)
MIG_MODE = _gpu("mig_mode", "Whether MIG is enabled.")
MIG_USED = _mig("mig_memory_used_bytes", "Memory in use in a MIG instance.")
MIG_TOTAL = _mig("mig_memory_total_bytes", "Total memory of a MIG instance.")

PROCESSES = _gpu("processes", "Processes that the driver lists on the GPU.")
UNMAPPED = _gpu(
    "processes_unmapped",
    "Listed processes that were not found: ended, or in another pid namespace.",
)
WORKER_MEMORY = _worker("memory_bytes", "GPU memory of the worker, including descendants.")
WORKER_UTILIZATION = _worker(
    "utilization_ratio", "Share of time during which the worker executed kernels."
)
ORPHANS = _gpu(
    "orphan_holders",
    "Processes that hold the GPU and belong to no worker; label gpu is empty if only the "
    "driver is known to be held. Absent without configured workers.",
)
OBSERVERS = _gpu(
    "observers",
    "Processes of no worker that only observe the GPU, such as monitoring tools: not listed by "
    "the driver, and without the files open that CUDA programs open.",
)
IN_USE = _gpu(
    "unowned_holders_in_use",
    "Processes of no worker that hold the GPU and that somebody works with: notebook kernels, "
    "processes with a terminal or in a login session. They are no orphans.",
)
ORPHAN_MEMORY = _gpu("orphan_memory_bytes", "GPU memory of orphan holders as listed by the driver.")
ORPHANS_UNLISTED = _gpu("orphan_holders_unlisted", "Orphan holders that the driver does not list.")
UNREADABLE = _gauge(
    "gpu_holders_unreadable_processes",
    "Processes that cannot be inspected, so that it is unknown whether they hold a GPU.",
)

PROBLEM = _gpu(
    "problem",
    "Current problems of the GPU; absent without a problem, but 0 for two minutes after. "
    "Value: orphan holders, uncorrected memory errors since the driver was loaded, or 1.",
    "problem",
)

METRICS = (
    *(DRIVER_STATE, DRIVER_INFO, EXPECTED, FOUND, SHARED, UP, INFO, FAILURES),
    *(UTILIZATION, MEMORY_UTILIZATION, MEMORY_TOTAL, MEMORY_USED, MEMORY_FREE, MEMORY_RESERVED),
    *(TEMPERATURE, SLOWDOWN, POWER, POWER_LIMIT, ENERGY, CLOCK, THROTTLE),
    *(ECC, RETIRED, RETIRED_PENDING, REMAPPED, REMAP_PENDING, REMAP_FAILED),
    *(PCIE_REPLAYS, PCIE_GENERATION, PCIE_MAX_GENERATION, PCIE_WIDTH, PCIE_MAX_WIDTH),
    *(LINK_UP, LINK_ERRORS, COMPUTE_MODE, PERSISTENCE, MIG_MODE, MIG_USED, MIG_TOTAL),
    *(PROCESSES, UNMAPPED, WORKER_MEMORY, WORKER_UTILIZATION),
    *(ORPHANS, ORPHAN_MEMORY, ORPHANS_UNLISTED, OBSERVERS, IN_USE, UNREADABLE, PROBLEM),
)


def gpu_samples(gpu: GpuReading) -> Iterator[Sample]:
    """Yields the samples of one GPU; omits unknown values."""
    labels = tuple(gpu.key)
    yield UP, labels, 1
    yield INFO, (*labels, gpu.name, gpu.pci_bus_id), 1
    for metric, value in _values(gpu):
        if value is not None:
            yield metric, labels, value
    for metric, more, number in _values_by_label(gpu):
        yield metric, (*labels, *more), number


def _values(gpu: GpuReading) -> Iterator[tuple[Metric, float | None]]:
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


def _values_by_label(gpu: GpuReading) -> Iterator[Sample]:
    yield from ((TEMPERATURE, (sensor,), value) for sensor, value in gpu.temperatures.items())
    yield from ((CLOCK, (clock,), value) for clock, value in gpu.clocks_hertz.items())
    yield from ((THROTTLE, (reason,), value) for reason, value in gpu.throttling.items())
    yield from ((ECC, more, value) for more, value in gpu.ecc_errors.items())
    yield from ((RETIRED, (cause,), value) for cause, value in gpu.retired_pages.items())
    if gpu.remapping is not None:
        yield REMAPPED, ("corrected",), gpu.remapping.corrected
        yield REMAPPED, ("uncorrected",), gpu.remapping.uncorrected
    if gpu.compute_mode is not None:
        for mode in COMPUTE_MODES.values():
            yield COMPUTE_MODE, (mode,), mode == gpu.compute_mode
    for link in gpu.nvlinks:
        yield LINK_UP, (str(link.link),), link.up
        for kind, count in link.errors.items():
            yield LINK_ERRORS, (str(link.link), kind), count
    for one in gpu.mig:
        if one.memory is not None:
            labels = (one.uuid, one.gpu_instance, one.compute_instance, one.name)
            yield MIG_USED, labels, one.memory.used
            yield MIG_TOTAL, labels, one.memory.total
