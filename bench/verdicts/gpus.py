"""The GPUs of a box, as the driver tells of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from verdicts.page import Page
from verdicts.parts import GIB, Worker

DRIVER_STATES = ("ok", "absent", "failed", "no_devices")
COMPUTE_MODES = ("default", "exclusive_process", "prohibited")
HARDWARE_REASONS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")


@dataclass
class Gpu:
    """One device; `holder` is the worker that has memory on it."""

    index: str
    holder: Worker | None = None
    up: bool = True
    gone: bool = False
    """Whether even the driver no longer lists it."""
    utilization: float = 0.0
    total: float = 80 * GIB
    used: float = 60 * GIB
    held: float = 60 * GIB
    """Of that, by the worker."""
    leaves: float = 0.2
    """Share of its memory that frameworks leave."""
    unused: bool = False
    """Whether its holder computes elsewhere."""
    orphans: int = 0
    mode: str = "default"
    throttled: set[str] = field(default_factory=set)
    uncorrected: int = 0
    remap_failed: bool = False
    remap_pending: bool = False
    xids: dict[tuple[str, str], float] = field(default_factory=dict)
    """When the last one came, by code and severity."""

    @property
    def labels(self) -> tuple[str, str]:
        return self.index, f"GPU-{self.index}"

    def put(self, page: Page) -> None:
        if self.gone:
            return
        page.put("trainwarden_gpu_up", self.up, *self.labels)
        for (xid, severity), moment in self.xids.items():
            page.put(
                "trainwarden_gpu_xid_last_timestamp_seconds", moment, *self.labels, xid, severity
            )
        if not self.up:
            return
        page.put("trainwarden_gpu_utilization_ratio", round(self.utilization, 2), *self.labels)
        page.put("trainwarden_gpu_memory_total_bytes", self.total, *self.labels)
        page.put("trainwarden_gpu_memory_free_bytes", self.total - self.used, *self.labels)
        page.put("trainwarden_gpu_orphan_holders", self.orphans, *self.labels)
        for mode in COMPUTE_MODES:
            page.put("trainwarden_gpu_compute_mode", mode == self.mode, *self.labels, mode)
        for reason in (*HARDWARE_REASONS, "sw_power_cap", "sw_thermal_slowdown"):
            held = reason in self.throttled
            page.put("trainwarden_gpu_throttle_active", held, *self.labels, reason)
        kinds = ("uncorrected", "volatile")
        page.put("trainwarden_gpu_ecc_errors_total", self.uncorrected, *self.labels, *kinds)
        page.put("trainwarden_gpu_row_remap_failed", self.remap_failed, *self.labels)
        page.put("trainwarden_gpu_row_remap_pending", self.remap_pending, *self.labels)
        if self.holder is not None and self.holder.alive:
            worker = (self.holder.run, self.holder.name, self.holder.role)
            page.put("trainwarden_worker_gpu_memory_bytes", self.held, *worker, *self.labels)


@dataclass
class Gpus:
    """All of them, and the driver; a box without GPUs has none."""

    devices: list[Gpu]
    driver: str = "ok"
    expected: int | None = None
    shared: bool = True
    watching: bool = True
    """Whether XIDs are waited for."""

    def put(self, page: Page) -> None:
        driver = self.driver if self.devices else "absent"
        for state in DRIVER_STATES:
            page.put("trainwarden_gpu_driver_state", state == driver, state)
        if self.expected:
            page.put("trainwarden_gpu_devices_expected", self.expected)
        if driver != "ok":
            return
        there = [gpu for gpu in self.devices if not gpu.gone]
        page.put("trainwarden_gpu_devices_found", sum(gpu.up for gpu in there))
        page.put("trainwarden_gpu_shared_expected", self.shared)
        page.put("trainwarden_gpu_xid_watching", self.watching)
        for gpu in there:
            gpu.put(page)
