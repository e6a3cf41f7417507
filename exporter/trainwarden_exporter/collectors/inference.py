"""Collects inference servers: availability, reason and load."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from trainwarden_exporter.exceptions import CollectError, NoData
from trainwarden_exporter.inference import metrics
from trainwarden_exporter.inference.api_keys import KeyFile, KeySource, environment_key, no_key
from trainwarden_exporter.inference.engines import build_engine
from trainwarden_exporter.inference.health_model import HealthReason, ProcessInfo
from trainwarden_exporter.inference.http_client import HttpClient
from trainwarden_exporter.inference.probe_loop import FIRST_ROUND_SECONDS, ProbeLoop
from trainwarden_exporter.inference.prober import Prober
from trainwarden_exporter.inference.process_activity import ProcessActivity
from trainwarden_exporter.inference.server_discovery import InferenceRun, ServerDiscovery
from trainwarden_exporter.inference.target import ServerHealth, ServerTarget
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.progress.run_time_evidence import ServerSigns
from trainwarden_exporter.scrape.collector import Collector, Family

log = logging.getLogger(__name__)

WORKED_SECONDS = 300.0
"""Seconds for which a server that worked counts as working, as for the processes of a run: what
follows the last request of an evaluation must not look like a stall."""

LoggedUpdate = Callable[[str], float | None]
"""Start (Unix seconds) of a weight update in progress according to the log of the named run;
None without one. Must not block."""


GpuUse = Callable[[WorkerKey], bool]
"""Whether a worker executes kernels on a GPU. Must not block."""


class InferenceCollector(Collector):
    """Exports the latest probe results; the probes run in a thread of their own."""

    name = "inference"
    metrics = metrics.METRICS

    def __init__(
        self,
        runs: Sequence[InferenceRun],
        *,
        logged_update: LoggedUpdate = lambda _: None,
        uses_gpu: GpuUse = lambda _: False,
        discovery: ServerDiscovery | None = None,
    ) -> None:
        self._any = any(run.inference for run in runs)
        self._discovery = discovery or ServerDiscovery(runs)
        self._prober_factory = _ProberFactory(self._discovery, logged_update, uses_gpu)
        self._probes = ProbeLoop(self._prober_factory.build)

    def take_over_from(self, predecessor: Self) -> None:
        """Continues with the probes of `predecessor`.

        A server with unchanged configuration keeps its state.
        """
        self._discovery.take_over_from(predecessor._discovery)
        self._probes = predecessor._probes
        prober_factory = predecessor._prober_factory
        prober_factory.discovery = self._discovery
        prober_factory.logged_update = self._prober_factory.logged_update
        prober_factory.uses_gpu = self._prober_factory.uses_gpu
        self._prober_factory = prober_factory

    def signs(self, run: str, silence: float | None) -> ServerSigns:
        """Returns what the servers of `run` show since `silence` (Unix seconds). Does not wait."""
        health = self._probes.latest(wait_seconds=0.0) if self._any else {}
        return server_signs(
            [one for target, one in health.items() if one is not None and target.run == run],
            silence,
            time.time(),
        )

    def collect(self) -> Iterable[Family]:
        targets = (
            self._discovery.result(wait_seconds=FIRST_ROUND_SECONDS).targets if self._any else ()
        )
        self._prober_factory.read_keys(targets)
        self._probes.set_targets(targets)
        if not self._any:
            raise NoData("no inference servers are configured")
        health_by_target = self._probes.latest()
        if not self._probes.is_alive:
            raise CollectError("the probes have stopped")
        return self.families(
            sample
            for target, health in health_by_target.items()
            for sample in metrics.server_samples(target, health)
        )

    def close(self) -> None:
        self._discovery.close()
        self._probes.close()
        self._prober_factory.close()


def server_signs(servers: Sequence[ServerHealth], silence: float | None, now: float) -> ServerSigns:
    """Returns what servers show since `silence`, the last sign of progress (Unix seconds)."""
    since = max(silence or 0.0, now - WORKED_SECONDS)
    down = (
        # found only after a while
        one.progress_timestamp or one.reason_timestamp
        if one.reason is HealthReason.HUNG
        else one.reason_timestamp
        for one in servers
        if one.up is False
    )
    return ServerSigns(
        down_since=min(down, default=None),
        working=any((one.progress_timestamp or 0.0) > since for one in servers),
    )


class _ProberFactory:
    """Builds probers; its dependencies may change at a reload."""

    def __init__(
        self, discovery: ServerDiscovery, logged_update: LoggedUpdate, uses_gpu: GpuUse
    ) -> None:
        self.discovery = discovery
        self.logged_update = logged_update
        self.uses_gpu = uses_gpu
        self._key_files: dict[Path, KeyFile] = {}

    def read_keys(self, targets: Iterable[ServerTarget]) -> None:
        """Starts to read the key files, and waits briefly for each new one."""
        files = (target.config.api_key_file for target in targets)
        wanted = {file for file in files if file is not None}
        for path in self._key_files.keys() - wanted:
            self._key_files.pop(path).close()
        for path in wanted - self._key_files.keys():
            self._key_files[path] = KeyFile(path)
            self._key_files[path].wait()

    def build(self, target: ServerTarget) -> Prober:
        engine = build_engine(target.engine, target.config, target.url or "", target.metrics_url)
        client = HttpClient(target.config.timeout, self._key_source(target), _context(target))
        return Prober(
            target,
            engine,
            client,
            process=self._process,
            activity=self._activity,
            logged_update=self._logged_update,
        )

    def close(self) -> None:
        for file in self._key_files.values():
            file.close()

    def _key_source(self, target: ServerTarget) -> KeySource:
        config = target.config
        if config.api_key_file is not None:
            path = config.api_key_file
            return lambda: file() if (file := self._key_files.get(path)) else None
        return no_key if config.api_key_env is None else environment_key(config.api_key_env)

    def _process(self, target: ServerTarget) -> ProcessInfo | None:
        return self.discovery.process(target)

    def _activity(self, target: ServerTarget) -> ProcessActivity | None:
        activity = self.discovery.activity(target)
        worker = WorkerKey(target.run, target.config.worker or "")
        return activity and replace(activity, uses_gpu=self.uses_gpu(worker))

    def _logged_update(self, run: str) -> float | None:
        return self.logged_update(run)


def _context(target: ServerTarget) -> ssl.SSLContext | None:
    """Returns the TLS context; the default one if the CA file has become invalid."""
    if not target.uses_tls:
        return None
    try:
        return target.config.tls.context()
    except (OSError, ValueError) as error:
        log.warning(
            "CA file not read", extra={"path": target.config.tls.ca_file, "error": str(error)}
        )
        return None
