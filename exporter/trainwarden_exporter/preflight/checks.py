"""Runs the preflight checks. They are read-only, except for the write probe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from trainwarden_exporter.config import Config
from trainwarden_exporter.disk.config import DiskConfig
from trainwarden_exporter.gpu.driver import TIMEOUT_SECONDS
from trainwarden_exporter.gpu.snapshot import TakeGpuSnapshot, take_gpu_snapshot
from trainwarden_exporter.preflight import disk as diskchecks
from trainwarden_exporter.preflight import gpu as gpuchecks
from trainwarden_exporter.preflight import host
from trainwarden_exporter.preflight.checkpoints import check_checkpoints
from trainwarden_exporter.preflight.disk_snapshot import DiskSnapshot, take_disk_snapshots
from trainwarden_exporter.preflight.report import Check, Finding, PreflightContext
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.runtime.blocking_thread import run_with_timeout

CHECKS: tuple[Check, ...] = (
    gpuchecks.check_driver,
    gpuchecks.check_devices,
    gpuchecks.check_running,
    gpuchecks.check_holders,
    gpuchecks.check_compute_mode,
    gpuchecks.check_memory,
    gpuchecks.check_health,
    host.check_memory,
    diskchecks.check_space,
    diskchecks.check_inodes,
    diskchecks.check_writable,
    diskchecks.check_speed,
    check_checkpoints,
    host.check_ports,
    host.check_loops,
    host.check_exit_statuses,
)


def run_checks(
    config: Config,
    *,
    run: str | None = None,
    memory_free: int | None = None,
    timeout: float = TIMEOUT_SECONDS,
    look: TakeGpuSnapshot = take_gpu_snapshot,
    take_disk_snapshots: Callable[
        [Sequence[DiskConfig], Sequence[RunConfig]], tuple[DiskSnapshot, ...]
    ] = take_disk_snapshots,
) -> tuple[Finding, ...]:
    """Returns all findings in the order of `CHECKS`. Raises CollectError if /proc is unreadable."""
    try:
        gpu = run_with_timeout(timeout, lambda: look(config.gpu, config.runs))
    except TimeoutError:
        gpu = None
    context = PreflightContext(config, gpu, run=run, memory_free=memory_free, timeout=timeout)
    context = replace(context, disks=take_disk_snapshots(config.disks, context.runs))
    return tuple(found for check in CHECKS if (found := check(context)) is not None)
