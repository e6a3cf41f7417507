"""The exporter application: all collectors, bound to a configuration."""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric as AnyFamily

from trainwarden_exporter import __version__
from trainwarden_exporter.collectors.checkpoint_copies import CheckpointCopiesCollector
from trainwarden_exporter.collectors.checkpoints import CheckpointsCollector
from trainwarden_exporter.collectors.containers import ContainersCollector
from trainwarden_exporter.collectors.disk import DiskCollector
from trainwarden_exporter.collectors.gpu import GpuCollector
from trainwarden_exporter.collectors.heartbeats import HeartbeatsCollector
from trainwarden_exporter.collectors.host import HostCollector
from trainwarden_exporter.collectors.inference import InferenceCollector
from trainwarden_exporter.collectors.logs import LogsCollector
from trainwarden_exporter.collectors.progress import ProgressCollector
from trainwarden_exporter.collectors.rollouts import RolloutsCollector
from trainwarden_exporter.collectors.stacks import StacksCollector
from trainwarden_exporter.collectors.workers import WorkersCollector
from trainwarden_exporter.collectors.xid import XidCollector
from trainwarden_exporter.config import (
    Config,
    RemediatorConfig,
    announced_folders,
    announcements_folder,
    load_config,
    with_announced,
)
from trainwarden_exporter.containers.config import ContainerKey
from trainwarden_exporter.exceptions import Problem
from trainwarden_exporter.gpu.nvml_library import Nvml
from trainwarden_exporter.gpu.xid_watcher import XidWatcher
from trainwarden_exporter.heartbeats.registry import HeartbeatRegistry
from trainwarden_exporter.processes.announcements import AnnouncedRuns, read_announcements
from trainwarden_exporter.processes.config import (
    hash_workers,
    hash_workers_by_run,
    workers_by_key,
)
from trainwarden_exporter.processes.process_table import ProcessTable
from trainwarden_exporter.progress.beats import default_beats_folder
from trainwarden_exporter.progress.holds import HoldPollers
from trainwarden_exporter.progress.silence import read_suspicious_silence
from trainwarden_exporter.progress.tracker import ProgressTracker
from trainwarden_exporter.run_specs import log_specs, progress_spec
from trainwarden_exporter.runtime.blocking_thread import SerialThread, run_with_timeout
from trainwarden_exporter.scrape import scraper
from trainwarden_exporter.scrape.collector import Collector, Metric, build_families
from trainwarden_exporter.scrape.process_metrics import (
    BUILD_INFO,
    PROCESS_METRICS,
    WEB_RELOAD_SUCCESS,
)
from trainwarden_exporter.scrape.scraper import Scraper
from trainwarden_exporter.status_page.remediator_client import ExporterIdentity, hold_pollers
from trainwarden_exporter.webserver.service import Readiness, Reloader, WebConfigFile

log = logging.getLogger(__name__)

COLLECTORS: tuple[type[Collector], ...] = (
    HostCollector,
    WorkersCollector,
    GpuCollector,
    XidCollector,
    DiskCollector,
    ContainersCollector,
    CheckpointsCollector,
    CheckpointCopiesCollector,
    RolloutsCollector,
    LogsCollector,
    StacksCollector,
    ProgressCollector,
    HeartbeatsCollector,
    InferenceCollector,
)
REFRESH_SECONDS = 2.0
"""How long a scrape waits for the folder of announced runs, which may be on a dead mount."""
CLOSE_SECONDS = 5.0
"""How long a shutdown waits for the disk with the state folder."""

RELOAD_SUCCESS = Metric(
    "trainwarden_config_last_reload_successful",
    "gauge",
    "Whether the last load of the configuration file succeeded.",
)
RELOAD_TIMESTAMP = Metric(
    "trainwarden_config_last_reload_success_timestamp_seconds",
    "gauge",
    "Unix time at which the configuration in force was loaded.",
)
WORKERS_HASH = Metric(
    "trainwarden_config_workers_hash",
    "gauge",
    "Hash of the names, `match` and `expected` of all workers in the configuration in force.",
)
RUN_WORKERS_HASH = Metric(
    "trainwarden_config_run_workers_hash",
    "gauge",
    "The same, of the workers that can find a process of the accounts of a run: by their `user`, "
    "or without one.",
    ("run",),
)
METRICS = (
    *(BUILD_INFO, RELOAD_SUCCESS, RELOAD_TIMESTAMP, WORKERS_HASH, RUN_WORKERS_HASH),
    *(WEB_RELOAD_SUCCESS, *PROCESS_METRICS),
)
_Loaded = tuple[Config, Collection[Collector], Mapping[str, int]]
"""A configuration, its collectors, and the hash of the workers of each run."""


def build_collectors(config: Config) -> tuple[Collector, ...]:
    """Returns one collector for each of `COLLECTORS`, with its part of `config`."""
    nvml = Nvml()
    watch = XidWatcher(nvml.subscribe)
    specs = [progress_spec(run) for run in config.runs]
    tracker = ProgressTracker(specs, state_folder=config.state_folder)
    heartbeats = HeartbeatRegistry(
        config.heartbeats,
        accept_any=config.heartbeats_accept == "any",
        state_folder=config.state_folder,
        on_step=tracker.record_heartbeat,
    )
    disk = DiskCollector(
        config.disks,
        [run.path for run in config.runs if run.path is not None],
        announced_folders(config),
    )
    checkpoints = CheckpointsCollector(
        config.runs, disk_label=disk.label, state_folder=config.state_folder
    )
    rollouts = RolloutsCollector(config.runs, tracker)
    logs = LogsCollector(
        [spec for run in config.runs for spec in log_specs(run)],
        state_folder=config.state_folder,
        output_files=lambda worker: workers.output_files(worker),  # noqa: PLW0108 - defined below
        sinks=[tracker.record_line, rollouts.record_line],
    )
    table = ProcessTable()
    workers = WorkersCollector(
        config.runs,
        state_folder=config.state_folder,
        trials_logged=logs.trials_logged,
        run_signs=tracker.signs,
        announced=partial(read_announcements, announcements_folder(config)),
        table=table,
    )
    specs_by_run = {spec.run: spec for spec in specs}
    stacks = StacksCollector(
        config.runs,
        trees=lambda: workers.trees,
        silence=lambda run: read_suspicious_silence(tracker, specs_by_run[run], time.time()),
    )
    gpu = GpuCollector(config.gpu, config.runs, nvml=nvml, xid_watcher=watch, table=table)
    inference = InferenceCollector(
        config.runs, logged_update=tracker.updating_since, uses_gpu=gpu.is_computing
    )
    return (
        HostCollector(config.host),
        workers,
        gpu,
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
        CheckpointCopiesCollector(
            config.runs, originals=checkpoints.proofs, state_folder=config.state_folder
        ),
        rollouts,
        logs,
        stacks,
        ProgressCollector(
            specs,
            tracker,
            checkpoints=checkpoints.newest_checkpoints,
            complete_checkpoints=checkpoints.complete_checkpoints,
            resume_points=checkpoints.resume_points,
            saves_in_progress=checkpoints.saves_in_progress,
            liveness=lambda: workers.liveness,
            beats_folder=config.beats_folder or default_beats_folder(),
            run_of=workers.run_of,
            holds=hold_pollers(
                config.remediator, ExporterIdentity(None, hash_workers(config.runs))
            ),
            state_folder=config.state_folder,
            movement=stacks.movement,
            script_end=stacks.script_end,
            servers=inference.signs,
        ),
        HeartbeatsCollector(heartbeats),
        inference,
    )


def declared_metrics() -> tuple[Metric, ...]:
    """Returns all metrics of the exporter, for validation of rules and dashboards."""
    return (
        *METRICS,
        *scraper.METRICS,
        *(metric for collector in COLLECTORS for metric in collector.metrics),
    )


class Exporter:
    """The exporter with a reloadable configuration from `path` (None: the defaults).

    Raises ConfigError if the file is invalid.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        build: Callable[[Config], Collection[Collector]] = build_collectors,
        now: Callable[[], float] = time.time,
        remediator: RemediatorConfig | None = None,
    ) -> None:
        """`remediator` replaces the one in the file."""
        self.path = path
        self._remediator = remediator
        self.readiness = Readiness()
        self.started = now()
        self.now = now
        self._build = build
        self._file_config = Config()
        self._announced_runs = AnnouncedRuns()
        self.run_problems: tuple[Problem, ...] = ()
        """What is wrong with the files of announced runs."""
        self.config, self._collectors, self._run_hashes = self._read()
        self.scraper = Scraper(self._collectors)
        self.reloader = Reloader(self._reload_configuration, now=now)
        self._web_config_file: WebConfigFile | None = None
        self._file_thread = SerialThread("read files")
        self._refresh: asyncio.Future[None] | None = None
        self._process = ProcessCollector(registry=None)

    @property
    def web_config_loaded(self) -> bool | None:
        """Whether the last load of the web configuration file succeeded; None without a file."""
        return self._web_config_file.last_reload_successful if self._web_config_file else None

    @property
    def heartbeats(self) -> HeartbeatRegistry:
        shown = (one for one in self._collectors if isinstance(one, HeartbeatsCollector))
        return next((one.heartbeats for one in shown), HeartbeatRegistry())

    @property
    def hold_pollers(self) -> HoldPollers:
        shown = (one for one in self._collectors if isinstance(one, ProgressCollector))
        return next((one.holds for one in shown), HoldPollers({}))

    @property
    def identity(self) -> ExporterIdentity:
        """The configuration in force, by which its remediator is recognised."""
        return ExporterIdentity(self.path, hash_workers(self.config.runs))

    def reload_with(self, web_config_file: WebConfigFile) -> None:
        """Reloads `web_config_file` at each reload too, and exports the result."""
        self._web_config_file = web_config_file
        self.reloader.add_step(web_config_file.reload)

    def exporter_families(self) -> list[AnyFamily]:
        """Returns the metrics about the exporter itself."""
        samples = (
            (BUILD_INFO, (__version__, platform.python_version()), 1),
            (RELOAD_SUCCESS, (), self.reloader.successful),
            (RELOAD_TIMESTAMP, (), self.reloader.success_timestamp),
            (WORKERS_HASH, (), hash_workers(self.config.runs)),
            *((RUN_WORKERS_HASH, (run,), value) for run, value in self._run_hashes.items()),
            (WEB_RELOAD_SUCCESS, (), self.web_config_loaded),
        )
        own = build_families((metric for metric, _, _ in samples), samples)
        return [*own, *self._process.collect()]

    def close(self) -> None:
        """Saves the read positions of logs; waits for a slow disk for a limited time."""
        for one in self._collectors:
            if isinstance(one, LogsCollector):
                with suppress(TimeoutError):
                    run_with_timeout(CLOSE_SECONDS, one.close)

    async def refresh_runs(self) -> None:
        """Adds runs that were announced since the last call, and drops the runs that are over."""
        if self._refresh is None or self._refresh.done():
            self._refresh = asyncio.ensure_future(self._refresh_runs())
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._refresh), REFRESH_SECONDS)

    async def _refresh_runs(self) -> None:
        try:
            found = await self._file_thread.call(self._read_announced)
        except Exception:
            # a scrape without new runs is better than none
            log.exception("announced runs not read; the configuration in force remains")
            return
        if found is not None:
            self.config, self._collectors, self._run_hashes = found
            self.scraper.replace_collectors(self._collectors)

    def _read_announced(self) -> _Loaded | None:
        config = self._with_announced(self._file_config)
        return None if config == self.config else self._load(config, self._file_config)

    def _with_announced(self, config: Config) -> Config:
        announced = read_announcements(
            announcements_folder(config), self.now(), self._announced_runs
        )
        self._announced_runs = announced
        merged, problems = with_announced(config, announced)
        problems = (*announced.problems, *problems)
        for problem in problems:
            if problem not in self.run_problems:
                log.warning("announced run ignored", extra={"problem": str(problem)})
        self.run_problems = problems
        return merged

    def _load(self, config: Config, file_config: Config) -> _Loaded:
        announced = self._announced_runs.workers.keys() - workers_by_key(file_config.runs).keys()
        return (
            config,
            self._build(config),
            hash_workers_by_run(config.runs, announced),
        )

    def _read(self) -> _Loaded:
        loaded = Config() if self.path is None else load_config(self.path)
        if self._remediator is not None:
            loaded = loaded.model_copy(update={"remediator": self._remediator})
        found = self._load(self._with_announced(loaded), loaded)
        self._file_config = loaded
        return found

    async def _reload_configuration(self) -> None:
        self.config, self._collectors, self._run_hashes = await self._file_thread.call(self._read)
        self.scraper.replace_collectors(self._collectors)
