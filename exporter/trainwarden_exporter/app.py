"""The exporter as a whole: which collectors there are, and what binds them to a configuration."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric as AnyFamily

from trainwarden_exporter import __version__, core
from trainwarden_exporter.collector import Collector, Metric
from trainwarden_exporter.collectors.checkpoints import CheckpointsCollector
from trainwarden_exporter.collectors.containers import ContainerKey, ContainersCollector
from trainwarden_exporter.collectors.disk import DiskCollector
from trainwarden_exporter.collectors.gpu import GpuCollector
from trainwarden_exporter.collectors.heartbeats import HeartbeatsCollector
from trainwarden_exporter.collectors.host import HostCollector
from trainwarden_exporter.collectors.inference import InferenceCollector
from trainwarden_exporter.collectors.logs import LogsCollector
from trainwarden_exporter.collectors.progress import ProgressCollector
from trainwarden_exporter.collectors.rollouts import RolloutsCollector
from trainwarden_exporter.collectors.workers import WorkersCollector
from trainwarden_exporter.collectors.xid import XidCollector
from trainwarden_exporter.config import Config, load_config
from trainwarden_exporter.core import Scraper
from trainwarden_exporter.gpu.nvml import Nvml
from trainwarden_exporter.gpu.xidwatch import XidWatch
from trainwarden_exporter.lane import Lane
from trainwarden_exporter.logs.specs import log_specs
from trainwarden_exporter.processes.table import ProcessTable
from trainwarden_exporter.progress.heartbeats import Heartbeats
from trainwarden_exporter.progress.specs import progress_spec
from trainwarden_exporter.progress.tracker import ProgressTracker
from trainwarden_exporter.serving.reload import Reloader
from trainwarden_exporter.serving.service import Readiness

COLLECTORS: tuple[type[Collector], ...] = (
    HostCollector,
    WorkersCollector,
    GpuCollector,
    XidCollector,
    DiskCollector,
    ContainersCollector,
    CheckpointsCollector,
    RolloutsCollector,
    LogsCollector,
    ProgressCollector,
    HeartbeatsCollector,
    InferenceCollector,
)

BUILD_INFO = Metric(
    "trainwarden_build_info",
    "gauge",
    "Always 1; its labels say which version of Trainwarden runs, and on which Python.",
    ("version", "python_version"),
)
RELOAD_SUCCESS = Metric(
    "trainwarden_config_last_reload_successful",
    "gauge",
    "Whether the last reading of the configuration file went well.",
)
RELOAD_TIMESTAMP = Metric(
    "trainwarden_config_last_reload_success_timestamp_seconds",
    "gauge",
    "Unix time at which the configuration in force was read.",
)
WEB_RELOAD_SUCCESS = Metric(
    "trainwarden_web_config_last_reload_successful",
    "gauge",
    "Whether the last reading of the web configuration file went well; absent without a file.",
)
# What prometheus_client's ProcessCollector shows of this program itself.
PROCESS_METRICS = (
    Metric("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes."),
    Metric("process_resident_memory_bytes", "gauge", "Resident memory size in bytes."),
    Metric(
        "process_start_time_seconds",
        "gauge",
        "Start time of the process since unix epoch in seconds.",
    ),
    Metric(
        "process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds."
    ),
    Metric("process_open_fds", "gauge", "Number of open file descriptors."),
    Metric("process_max_fds", "gauge", "Maximum number of open file descriptors."),
)
METRICS = (BUILD_INFO, RELOAD_SUCCESS, RELOAD_TIMESTAMP, WEB_RELOAD_SUCCESS, *PROCESS_METRICS)


def build_collectors(config: Config) -> tuple[Collector, ...]:
    """One of each of `COLLECTORS`, with its part of `config`."""
    nvml = Nvml()
    watch = XidWatch(nvml.subscribe)
    specs = [progress_spec(run) for run in config.runs]
    tracker = ProgressTracker(specs, state_folder=config.state_folder)
    heartbeats = Heartbeats(
        config.heartbeats,
        accept_any=config.heartbeats_accept == "any",
        state_folder=config.state_folder,
        on_step=tracker.note_heartbeat,
    )
    disk = DiskCollector(config.disks, [run.path for run in config.runs if run.path is not None])
    checkpoints = CheckpointsCollector(config.runs, disk_label=disk.label)
    rollouts = RolloutsCollector(config.runs, tracker)
    logs = LogsCollector(
        [spec for run in config.runs for spec in log_specs(run)],
        state_folder=config.state_folder,
        sinks=[tracker.note_line, rollouts.note_line],
    )
    table = ProcessTable()
    workers = WorkersCollector(
        config.runs,
        state_folder=config.state_folder,
        trials_told=logs.trials_told,
        table=table,
    )
    return (
        HostCollector(config.host),
        workers,
        GpuCollector(config.gpu, config.runs, nvml=nvml, watch=watch, table=table),
        XidCollector(watch),
        disk,
        ContainersCollector(
            {
                ContainerKey(run.name, container.name): container
                for run in config.runs
                for container in run.containers
            },
            config.docker,
            state_folder=config.state_folder,
        ),
        checkpoints,
        rollouts,
        logs,
        ProgressCollector(
            specs,
            tracker,
            checkpoints=checkpoints.newest,
            saving=checkpoints.saving,
            lives=lambda: workers.lives,
        ),
        HeartbeatsCollector(heartbeats),
        InferenceCollector(config.runs, told_update=tracker.updating_since),
    )


def declared_metrics() -> tuple[Metric, ...]:
    """Every metric this exporter can show: what rules and dashboards are checked against."""
    return (
        *METRICS,
        *core.METRICS,
        *(metric for collector in COLLECTORS for metric in collector.metrics),
    )


class WebFile(Protocol):
    """Whoever reads the web configuration file: the server."""

    @property
    def last_reload_successful(self) -> bool | None:
        """None without a file."""

    async def reload(self) -> None:
        """Raises ConfigError."""


class Exporter:
    """Scrapes by the configuration in `path` (the defaults when None), which can be reloaded.

    Raises ConfigError when the file cannot be used.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        build: Callable[[Config], Collection[Collector]] = build_collectors,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self.readiness = Readiness()
        self.started = now()
        self.now = now
        self._build = build
        self.config, self._collectors = self._read()
        self.scraper = Scraper(self._collectors)
        self.reloader = Reloader(self._reload_configuration, now=now)
        self._web_file: WebFile | None = None
        self._file_lane = Lane("read files")
        self._process = ProcessCollector(registry=None)

    @property
    def web_file_successful(self) -> bool | None:
        """Whether the last reading of the web configuration file went well; None without a file."""
        return self._web_file.last_reload_successful if self._web_file else None

    @property
    def heartbeats(self) -> Heartbeats:
        """What takes the heartbeats that are sent; none is awaited where nobody shows them."""
        shown = (one for one in self._collectors if isinstance(one, HeartbeatsCollector))
        return next((one.heartbeats for one in shown), Heartbeats())

    def reload_with(self, web_file: WebFile) -> None:
        """Reload `web_file` at each reload too, and show how it fared."""
        self._web_file = web_file
        self.reloader.also(web_file.reload)

    def own_families(self) -> list[AnyFamily]:
        """The exporter about itself."""
        build_info, success, moment = (
            metric.family() for metric in (BUILD_INFO, RELOAD_SUCCESS, RELOAD_TIMESTAMP)
        )
        build_info.add_metric([__version__, platform.python_version()], 1)
        success.add_metric([], self.reloader.successful)
        moment.add_metric([], self.reloader.success_timestamp)
        own: list[AnyFamily] = [build_info, success, moment]
        if self.web_file_successful is not None:
            web_success = WEB_RELOAD_SUCCESS.family()
            web_success.add_metric([], self.web_file_successful)
            own.append(web_success)
        return [*own, *self._process.collect()]

    def _read(self) -> tuple[Config, Collection[Collector]]:
        config = Config() if self.path is None else load_config(self.path)
        return config, self._build(config)

    async def _reload_configuration(self) -> None:
        self.config, self._collectors = await self._file_lane.call(self._read)
        self.scraper.adopt(self._collectors)
