"""Models of the monitored parts of a host: workers, disks, containers, heartbeats, logs.

Each part exports its state as the exporter would: the exporter's own counters restart with it, the
contents of its state folder do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from trainwarden_exporter.processes.config import select_trainers
from trainwarden_exporter.processes.metrics import AGING_SECONDS, AUXILIARY_ROLES
from trainwarden_exporter.scrape.collector import PROBLEM_HOLD_SECONDS
from verdicts.page import BASE, Page

GIB = float(1 << 30)
CONTAINER_STATES = ("created", "running", "paused", "restarting", "exited", "dead", "absent")
PERIOD_FROM = 3
"""Number of starts needed for a period."""
RECENT_SECONDS = 600.0


@dataclass
class Worker:
    """A part of a run with one or more processes. Times are of the host's clock."""

    run: str
    name: str
    role: str
    started: float
    expected: int = 1
    processes: int = 1
    resident: float = 4 * GIB
    growth: float = 0.0
    """Bytes per second."""
    limit: float | None = None
    age_limit: float | None = None
    finishes: bool = False
    finished: bool = False
    exit_code: float | None = None
    restarts: int = 0
    """As observed by the exporter; lost at its restart."""
    remembered: list[float] = field(default_factory=list)
    """When those were that it saw; it keeps that."""
    over_age_at: float | None = None
    """When the exporter last saw it older than its age limit."""
    unseen: list[float] = field(default_factory=list)
    """When those were that it has not seen yet."""
    watched: bool = True
    ended: int = 0
    """Processes that ended and were not replaced yet."""
    trials: int | None = None
    """Ended since its start; None where they are not counted."""
    trials_limit: int | None = None
    absence: str = ""
    """Why the exporter takes its absence for no sign of a failure."""
    stopped: int = 0
    """Processes that a signal has stopped."""
    cpu: float = 0.0
    """Seconds of CPU time so far."""

    @property
    def alive(self) -> bool:
        return self.processes > 0

    def end(self, status: int) -> None:
        """All its processes end."""
        self.ended, self.processes = self.ended + self.processes, 0
        self.exit_code = float(status)
        self.finished = self.finishes and status == 0

    def begin(self, now: float, *, resident: float = 3 * GIB) -> None:
        """It restarts."""
        replaced = min(self.ended, self.expected)
        self.restarts += replaced
        self.unseen += [now] * replaced
        self.ended, self.processes, self.started = 0, self.expected, now
        self.resident, self.finished, self.absence = resident, False, ""
        self.trials = None if self.trials is None else 0

    def forget(self) -> None:
        """The exporter restarts: its counters are lost, its stored state is not."""
        self.restarts, self.ended, self.exit_code = 0, 0, None
        self.unseen.clear()
        self.over_age_at = None

    def put(self, page: Page, now: float) -> None:
        if not self.watched:
            return
        labels = (self.run, self.name, self.role)
        page.put("trainwarden_worker_processes", self.processes, *labels)
        page.put("trainwarden_worker_expected_processes", self.expected, *labels)
        page.put("trainwarden_worker_restarts_total", self.restarts, *labels)
        page.put("trainwarden_worker_finished", self.finished, *labels)
        page.put("trainwarden_worker_memory_limit_bytes", self.limit, *labels)
        page.put("trainwarden_worker_age_limit_seconds", self.age_limit, *labels)
        page.put("trainwarden_worker_last_exit_code", self.exit_code, *labels)
        page.put("trainwarden_worker_trials_limit", self.trials_limit, *labels)
        if self.alive:
            page.put("trainwarden_worker_trials", self.trials, *labels)
            page.put("trainwarden_worker_memory_bytes", round(self.resident), *labels)
            page.put("trainwarden_worker_cpu_seconds_total", round(self.cpu, 1), *labels)
            page.put("trainwarden_worker_process_states", self.stopped, *labels, "stopped")
            page.put("trainwarden_worker_start_timestamp_seconds", self.started, *labels)
        self._put_trouble(page, now)

    def _put_trouble(self, page: Page, now: float) -> None:
        """What is there only while something is wrong."""
        labels = (self.run, self.name, self.role)
        seen = (*self.remembered, *self.unseen)
        self.remembered = [one for one in seen if now - RECENT_SECONDS < one <= now]
        self.unseen.clear()
        missing = 0 if self.finished else self.expected - self.processes
        if self.absence and missing > 0:
            name = "trainwarden_worker_unconfirmed_missing_processes"
            page.put(name, missing, *labels, self.absence)
            missing = 0
        recent = len(self.remembered)
        for metric, value in (
            ("missing_processes", missing),
            ("recent_restarts", recent),
            ("excess_restarts", recent - self.expected),
        ):
            page.put(f"trainwarden_worker_{metric}", value if value > 0 else None, *labels)
        excess = 0 if self.limit is None else round(self.resident) - self.limit
        if self.alive and excess > 0:
            page.put("trainwarden_worker_memory_excess_bytes", excess, *labels)
        age = now - self.started if self.alive and self.age_limit is not None else 0.0
        if self.age_limit is not None and age > self.age_limit - AGING_SECONDS:
            resident = round(self.resident)
            page.put("trainwarden_worker_aging_memory_bytes", resident, *labels)
        if self.age_limit is not None and age > self.age_limit:
            self.over_age_at = now
        if self.over_age_at is not None and now - self.over_age_at <= PROBLEM_HOLD_SECONDS:
            shown = age if self.over_age_at == now else 0
            page.put("trainwarden_worker_age_excess_seconds", shown, *labels)


def put_run(page: Page, workers: Sequence[Worker]) -> None:
    """What the exporter says of a run as a whole, by all its workers that it watches."""
    if not workers:
        return
    run = workers[0].run
    finished = all(worker.finished for worker in workers)
    page.put("trainwarden_run_workers_finished", finished, run)
    begun = [one.started for one in workers if one.alive and one.role not in AUXILIARY_ROLES]
    page.put("trainwarden_run_newest_start_timestamp_seconds", max(begun, default=None), run)
    trainers = select_trainers(workers)
    if trainers:
        begun = [one.started for one in trainers if one.alive]
        page.put("trainwarden_run_trainer_processes", sum(one.processes for one in trainers), run)
        page.put("trainwarden_run_trainer_start_timestamp_seconds", max(begun, default=None), run)
        page.put("trainwarden_run_trainer_finished", all(one.finished for one in trainers), run)


@dataclass
class Host:
    """Memory and boots."""

    total: float = 256 * GIB
    other: float = 12 * GIB
    """Held by what is no worker."""
    floor: float = 8 * GIB
    boot: float = BASE - 4e6
    oom_kills: int = 0

    def put(self, page: Page, held: float) -> None:
        available = round(max(0.0, self.total - self.other - held))
        page.put("trainwarden_memory_effective_available_bytes", available)
        page.put("trainwarden_memory_available_floor_bytes", self.floor)
        if available < self.floor:
            page.put("trainwarden_memory_shortfall_bytes", self.floor - available)
        page.put("trainwarden_host_boot_timestamp_seconds", self.boot)
        page.put("trainwarden_memory_oom_kills_total", self.oom_kills, "host")


@dataclass
class Disk:
    """A disk that the run saves to."""

    path: str = "/"
    up: bool = True
    size: float = 2000 * GIB
    free: float = 1200 * GIB
    floor: float = 50 * GIB
    growth: float = 0.0
    """Bytes per second by which it fills."""
    inodes: float = 1e8
    free_inodes: float = 9e7
    read_only: bool = False
    probed: bool = False
    speed: float = 900e6
    speed_floor: float = 100e6
    writes: bool = True
    probe: tuple[bool, float] | None = None
    """What the last probe found."""

    def put(self, page: Page) -> None:
        page.put("trainwarden_disk_up", self.up, self.path)
        page.put("trainwarden_disk_free_floor_bytes", self.floor, self.path)
        if not self.up:
            return
        page.put("trainwarden_disk_size_bytes", self.size, self.path)
        page.put("trainwarden_disk_free_bytes", round(max(0.0, self.free)), self.path)
        page.put("trainwarden_disk_inodes", self.inodes, self.path)
        page.put("trainwarden_disk_free_inodes", self.free_inodes, self.path)
        page.put("trainwarden_disk_read_only", self.read_only, self.path)
        if self.probed:
            page.put("trainwarden_disk_probe_floor_bytes_per_second", self.speed_floor, self.path)
        if self.probe is not None:
            success, speed = self.probe
            page.put("trainwarden_disk_probe_success", success, self.path)
            if success:
                page.put("trainwarden_disk_probe_bytes_per_second", round(speed), self.path)


@dataclass
class Container:
    """What the run runs in."""

    run: str
    name: str
    starts: list[float]
    state: str = "running"
    exit_code: float | None = None
    oom_kills: int = 0
    health: str | None = None
    engine: str = "ok"
    seen: float | None = None
    """When it was last looked at, where that is no longer done."""

    def put(self, page: Page, now: float) -> None:
        labels = (self.run, self.name)
        for state in ("ok", "unreachable", "forbidden"):
            page.put("trainwarden_container_engine_state", state == self.engine, *labels, state)
        page.put("trainwarden_container_seen_timestamp_seconds", self.seen or now, *labels)
        for state in CONTAINER_STATES:
            page.put("trainwarden_container_state", state == self.state, *labels, state)
        recent = [start for start in self.starts if now - RECENT_SECONDS < start <= now]
        page.put("trainwarden_container_recent_starts", len(recent), *labels)
        distances = sorted(later - one for one, later in pairwise(recent))
        if len(recent) >= PERIOD_FROM:
            middle = distances[len(distances) // 2]
            page.put("trainwarden_container_start_period_seconds", middle, *labels)
        if self.state == "running":
            page.put("trainwarden_container_start_timestamp_seconds", max(self.starts), *labels)
        page.put("trainwarden_container_last_exit_code", self.exit_code, *labels)
        page.put("trainwarden_container_oom_kills_total", self.oom_kills, *labels)
        if self.health is not None:
            for health in ("healthy", "unhealthy", "starting"):
                page.put("trainwarden_container_health", health == self.health, *labels, health)


@dataclass
class Heartbeat:
    """Something that must be watched itself, and says that it lives."""

    run: str
    name: str
    interval: float
    awaited: float
    last: float | None = None
    alive: bool = True
    file: bool = True
    """Whether it touches a file, else it posts."""
    seen: float | None = None
    """When its file was last looked for, where that is no longer done."""

    def put(self, page: Page, now: float) -> None:
        labels = (self.run, self.name)
        page.put("trainwarden_heartbeat_interval_seconds", self.interval, *labels)
        page.put("trainwarden_heartbeat_awaited_since_timestamp_seconds", self.awaited, *labels)
        page.put("trainwarden_heartbeat_timestamp_seconds", self.last, *labels)
        if self.file:
            page.put("trainwarden_heartbeat_seen_timestamp_seconds", self.seen or now, *labels)


@dataclass
class Log:
    """A log that is followed. Its counts are kept over restarts of the exporter."""

    run: str
    name: str
    role: str
    worker: str
    written: float
    silence_limit: float | None = None
    grows: bool = True
    """Whether its part of the run goes on writing."""
    troubles: int = 0
    last_match: dict[str, float] = field(default_factory=dict)
    streaks: dict[str, int] = field(default_factory=dict)
    finite: dict[str, bool] = field(default_factory=dict)
    values: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Numbers from log lines, with their times."""
    value_time: float | None = None
    buffered: bool = False
    """Whether its writer holds lines back."""
    seen: float | None = None
    """When it was last looked at, where that is no longer done."""

    def trouble(self, pattern: str, now: float) -> None:
        """A line of trouble was written."""
        self.troubles += 1
        self.last_match[pattern] = self.written = now

    def note(self, now: float, values: Mapping[str, float]) -> None:
        """A line with numbers was written."""
        self.written = self.value_time = now
        for name, value in values.items():
            self.finite[name] = value - value == 0

    def put(self, page: Page, now: float) -> None:
        labels = (self.run, self.name)
        page.put("trainwarden_log_info", 1, *labels, self.role, self.worker)
        page.put("trainwarden_log_seen_timestamp_seconds", self.seen or now, *labels)
        page.put("trainwarden_log_last_write_timestamp_seconds", self.written, *labels)
        page.put("trainwarden_log_silence_limit_seconds", self.silence_limit, *labels)
        page.put("trainwarden_log_block_buffered", self.buffered, *labels)
        page.put("trainwarden_log_error_lines_total", self.troubles, *labels)
        for pattern, moment in self.last_match.items():
            page.put("trainwarden_log_last_match_timestamp_seconds", moment, *labels, pattern)
        for pattern, streak in self.streaks.items():
            page.put("trainwarden_log_match_streak", streak, *labels, pattern)
        for name, finite in self.finite.items():
            page.put("trainwarden_log_value_finite", finite, *labels, name)
            page.put("trainwarden_log_value_timestamp_seconds", self.value_time, *labels, name)
        for name, (number, moment) in self.values.items():
            page.put("trainwarden_log_value", number, *labels, name)
            page.put("trainwarden_log_value_timestamp_seconds", moment, *labels, name)
