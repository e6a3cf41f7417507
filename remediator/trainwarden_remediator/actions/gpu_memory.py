"""Waits until the driver has released the memory of ended processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.gpu.model import GpuKey
from trainwarden_exporter.gpu.snapshot import GpuSnapshot, TakeGpuSnapshot
from trainwarden_exporter.processes.procfs import read_open_links
from trainwarden_exporter.runtime.blocking_thread import run_with_timeout
from trainwarden_exporter.runtime.formatting import format_size

DRIVER_TIMEOUT_SECONDS = 15.0
"""Timeout of a query to the driver: a hanging driver must not block the remediator."""

POLL_SECONDS = 0.5
"""Time between two queries of the GPUs during the wait."""

SLACK_BYTES = 256 * 1024 * 1024
"""Tolerated fluctuation of memory without an owner: the driver's own, or a new context."""


def read_gpus(take: TakeGpuSnapshot, config: ExporterConfig) -> GpuSnapshot:
    """Returns what `take` does, in a thread. Raises CollectError or TimeoutError."""
    return run_with_timeout(DRIVER_TIMEOUT_SECONDS, partial(take, config.gpu, config.runs))


def wait_for_memory(
    read_gpus: Callable[[], GpuSnapshot], before: GpuSnapshot, ended: Collection[int], within: float
) -> Mapping[GpuKey, int]:
    """Waits until the memory of the pids `ended` is released; returns unreleased bytes by GPU.

    The driver releases the memory some time after a process has ended, or never if the process
    ended in the middle of its work. Until then it may still list the process. Memory that other
    processes allocate meanwhile is not counted. Raises what `read_gpus` raises.
    """
    baseline = unaccounted_bytes(before)
    deadline = time.monotonic() + within
    while True:
        more = {
            key: amount - baseline.get(key, 0)
            for key, amount in unaccounted_bytes(read_gpus(), excluding=ended).items()
        }
        unreleased = {key: amount for key, amount in more.items() if amount > SLACK_BYTES}
        if not unreleased or time.monotonic() >= deadline:
            return unreleased
        time.sleep(POLL_SECONDS)


def unaccounted_bytes(
    view: GpuSnapshot, *, excluding: Collection[int] = ()
) -> Mapping[GpuKey, int]:
    """Returns the bytes in use on each GPU that no process owns, except the pids `excluding`."""
    return {
        gpu.key: gpu.memory.used
        - sum(row.memory_bytes or 0 for row in gpu.processes or () if row.pid not in excluding)
        for gpu in view.driver.gpus
        if gpu.memory is not None
    }


def describe_unreleased(unreleased: Mapping[GpuKey, int]) -> str:
    return ", ".join(f"{format_size(size)} on GPU {key.gpu}" for key, size in unreleased.items())


def uses_gpu(pids: Iterable[int], device_root: Path) -> bool:
    """Whether one of these processes has a device file of the driver open, as far as visible.

    Much cheaper than a query to the driver.
    """
    return any(
        link.startswith(f"{device_root}/nvidia") for pid in pids for _, link in read_open_links(pid)
    )
