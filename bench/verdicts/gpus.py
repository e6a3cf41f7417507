"""The GPUs of a box, as the driver tells of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trainwarden_exporter.gpu.xid_watcher import USER_TTL_SECONDS
from trainwarden_exporter.scrape.collector import PROBLEM_HOLD_SECONDS
from verdicts.page import SCRAPE, Page
from verdicts.parts import GIB, Worker

DRIVER_STATES = ("ok", "absent", "failed", "no_devices")
COMPUTE_MODES = ("default", "exclusive_process", "prohibited")
CLOCK, IDLE_CLOCK = 1980e6, 345e6
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
    speed: float = 1.0
    """Its clock as a share of the usual one."""
    lanes: int = 16
    orphans: int = 0
    in_use: int = 0
    """Processes of no worker that hold it and that somebody works with."""
    mode: str = "default"
    throttled: set[str] = field(default_factory=set)
    uncorrected: int = 0
    remap_failed: bool = False
    remap_pending: bool = False
    xids: dict[tuple[str, str], float] = field(default_factory=dict)
    """When the last one came, by code and severity."""
    had_memory: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """When each worker was last seen to have memory there, by the scrapes of the page."""
    problem_seen_at: dict[str, float] = field(default_factory=dict)
    """When each trouble was last seen, by the scrapes of the page."""

    @property
    def labels(self) -> tuple[str, str]:
        return self.index, f"GPU-{self.index}"

    def forget(self) -> None:
        """The exporter restarts."""
        self.problem_seen_at.clear()
        self.had_memory.clear()

    def put(self, page: Page, *, shared: bool) -> None:
        if self.gone:
            return
        self._put_problems(page, self._problems(shared=shared))
        page.put("trainwarden_gpu_up", self.up, *self.labels)
        for (xid, severity), moment in self.xids.items():
            page.put(
                "trainwarden_gpu_xid_last_timestamp_seconds", moment, *self.labels, xid, severity
            )
        if not self.up:
            return
        page.put("trainwarden_gpu_utilization_ratio", round(self.utilization, 2), *self.labels)
        page.put("trainwarden_gpu_info", 1, *self.labels, "H100", f"0:{self.index}")
        page.put("trainwarden_gpu_clock_hertz", self._clock(), *self.labels, "sm")
        page.put("trainwarden_gpu_pcie_link_width", self.lanes, *self.labels)
        page.put("trainwarden_gpu_pcie_link_generation", 5 if self.utilization else 1, *self.labels)
        page.put("trainwarden_gpu_memory_total_bytes", self.total, *self.labels)
        page.put("trainwarden_gpu_memory_free_bytes", self.total - self.used, *self.labels)
        page.put("trainwarden_gpu_orphan_holders", self.orphans, *self.labels)
        page.put("trainwarden_gpu_unowned_holders_in_use", self.in_use, *self.labels)
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
            self.had_memory[worker] = page.length * SCRAPE

    def _clock(self) -> float:
        """In hertz: low while idle; chips differ by some per cent."""
        return self.speed * CLOCK * (1 - 0.02 * int(self.index)) if self.utilization else IDLE_CLOCK

    def xids_of_workers(self, now: float) -> Iterator[tuple[tuple[str, ...], float]]:
        """When the last one came, by the workers that had memory there of late, and severity."""
        for worker, when in self.had_memory.items():
            if now - when <= USER_TTL_SECONDS:
                for (_, severity), moment in self.xids.items():
                    yield (*worker, severity), moment

    def _problems(self, *, shared: bool) -> Mapping[str, float]:
        """The checked problems, 0 where there is none; of a lost GPU only `lost`."""
        if not self.up:
            return {"lost": 1}
        modes = {
            mode: mode == self.mode and (shared or mode == "prohibited")
            for mode in COMPUTE_MODES
            if mode != "default"
        }
        return {
            "lost": 0,
            "held_by_leftovers": self.orphans,
            "memory_errors": self.uncorrected,
            "row_remap_failed": self.remap_failed,
            "row_remap_pending": self.remap_pending,
            **modes,
            **{reason: reason in self.throttled for reason in HARDWARE_REASONS},
        }

    def _put_problems(self, page: Page, problems: Mapping[str, float]) -> None:
        now = page.length * SCRAPE
        for problem, value in problems.items():
            if value:
                self.problem_seen_at[problem] = now
            if (
                now - self.problem_seen_at.get(problem, -PROBLEM_HOLD_SECONDS - 1)
                <= PROBLEM_HOLD_SECONDS
            ):
                page.put("trainwarden_gpu_problem", value, *self.labels, problem)


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
            gpu.put(page, shared=self.shared)
        came: dict[tuple[str, ...], float] = {}
        for gpu in there:
            for whose, moment in gpu.xids_of_workers(page.length * SCRAPE):
                came[whose] = max(moment, came.get(whose, moment))
        for whose, moment in came.items():
            page.put("trainwarden_worker_gpu_xid_timestamp_seconds", moment, *whose)
