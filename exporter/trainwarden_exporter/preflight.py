"""Answers whether a run may start here, by checks that look and change nothing."""

from __future__ import annotations

from collections.abc import Callable

from trainwarden_exporter.config import Config
from trainwarden_exporter.findings import Check, Finding, Subject
from trainwarden_exporter.gpu import checks as gpuchecks
from trainwarden_exporter.gpu.view import GpuView, look_at_gpus
from trainwarden_exporter.lane import within

PATIENCE = 15.0
"""Seconds that the GPU driver has to answer; the first question of all may load it."""

CHECKS: tuple[Check, ...] = (
    gpuchecks.check_driver,
    gpuchecks.check_devices,
    gpuchecks.check_running,
    gpuchecks.check_holders,
    gpuchecks.check_compute_mode,
    gpuchecks.check_memory,
    gpuchecks.check_health,
)


def examine(
    config: Config,
    *,
    run: str | None = None,
    memory_free: int | None = None,
    patience: float = PATIENCE,
    look: Callable[[Config], GpuView] = look_at_gpus,
) -> tuple[Finding, ...]:
    """All findings, in the order of `CHECKS`. Raises CollectError where /proc cannot be read."""
    try:
        gpu = within(patience, lambda: look(config))
    except TimeoutError:
        gpu = None
    subject = Subject(config, gpu, run=run, memory_free=memory_free, patience=patience)
    return tuple(found for check in CHECKS if (found := check(subject)) is not None)
