"""Answers whether a run may start here, by checks that look and leave nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from trainwarden_exporter import boxchecks
from trainwarden_exporter.collectors.disk import DiskConfig
from trainwarden_exporter.config import Config
from trainwarden_exporter.disk import checks as diskchecks
from trainwarden_exporter.disk.view import DiskView, look_at_disks
from trainwarden_exporter.findings import Check, Finding, Subject
from trainwarden_exporter.gpu import checks as gpuchecks
from trainwarden_exporter.gpu.driver import PATIENCE
from trainwarden_exporter.gpu.view import GpuView, look_at_gpus
from trainwarden_exporter.lane import within
from trainwarden_exporter.runs import RunConfig

CHECKS: tuple[Check, ...] = (
    gpuchecks.check_driver,
    gpuchecks.check_devices,
    gpuchecks.check_running,
    gpuchecks.check_holders,
    gpuchecks.check_compute_mode,
    gpuchecks.check_memory,
    gpuchecks.check_health,
    boxchecks.check_memory,
    diskchecks.check_space,
    diskchecks.check_inodes,
    diskchecks.check_writable,
    diskchecks.check_speed,
    boxchecks.check_ports,
    boxchecks.check_loops,
)


def examine(
    config: Config,
    *,
    run: str | None = None,
    memory_free: int | None = None,
    patience: float = PATIENCE,
    look: Callable[[Config], GpuView] = look_at_gpus,
    look_at_disks: Callable[
        [Sequence[DiskConfig], Sequence[RunConfig]], tuple[DiskView, ...]
    ] = look_at_disks,
) -> tuple[Finding, ...]:
    """All findings, in the order of `CHECKS`. Raises CollectError where /proc cannot be read."""
    try:
        gpu = within(patience, lambda: look(config))
    except TimeoutError:
        gpu = None
    subject = Subject(config, gpu, run=run, memory_free=memory_free, patience=patience)
    subject = replace(subject, disks=look_at_disks(config.disks, subject.runs))
    return tuple(found for check in CHECKS if (found := check(subject)) is not None)
