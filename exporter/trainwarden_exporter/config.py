"""The shape of exporter.yml."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from trainwarden_exporter import yamlfile
from trainwarden_exporter.collectors.containers import DockerConfig
from trainwarden_exporter.collectors.disk import Disks
from trainwarden_exporter.collectors.gpu import GpuConfig
from trainwarden_exporter.collectors.host import HostConfig
from trainwarden_exporter.logs.specs import log_specs
from trainwarden_exporter.processes.trials import TRIAL
from trainwarden_exporter.progress.heartbeats import HeartbeatConfig
from trainwarden_exporter.remediation.config import RemediatorConfig
from trainwarden_exporter.runs import RunConfig
from trainwarden_exporter.units import LocalPath
from trainwarden_exporter.yamlfile import MisplacedError, Section


class Config(Section):
    """A whole exporter.yml. An empty file is a good one: it watches the host alone."""

    host: HostConfig = HostConfig()
    """The machine, or the container that stands for it."""

    gpu: GpuConfig = GpuConfig()
    """The GPUs of the machine, those of NVIDIA."""

    disks: Disks = ()
    """Disks to watch beside those that the paths of the runs lie on."""

    docker: DockerConfig = DockerConfig()
    """The Docker engine of the machine, for containers of runs that name one."""

    state_folder: LocalPath | None = None
    """Where the exporter keeps what must outlive it: which workers have finished, and when workers
    and containers started of late. Without it, a finished worker looks gone after a restart of the
    exporter, and a restart loop, as well as the trials of a worker, begin to be counted anew."""

    runs: tuple[RunConfig, ...] = ()
    """The training runs on it, each with its workers."""

    heartbeats: tuple[HeartbeatConfig, ...] = ()
    """Signs of life that are awaited: of watchdogs, cron jobs, brakes, trainers."""

    heartbeats_accept: Literal["configured", "any"] = "configured"
    """Whether beats of names that are not configured are taken too: at most 100 names."""

    remediator: RemediatorConfig | None = None
    """The remediator of this box, whose alerts and last actions the status page shows."""

    @model_validator(mode="after")
    def _names_tell_runs_apart(self) -> Self:
        first: dict[str, int] = {}
        for index, run in enumerate(self.runs):
            if first.setdefault(run.name, index) != index:
                raise MisplacedError(
                    f"{run.name} is the name of runs[{first[run.name]}] already",
                    *("runs", index, "name"),
                )
        return self

    @model_validator(mode="after")
    def _own_starts_can_be_counted(self) -> Self:
        if self.state_folder is None:
            for number, run in enumerate(self.runs):
                for index, container in enumerate(run.containers):
                    if container.own:
                        place = ("runs", number, "containers", index, "self")
                        raise MisplacedError("its starts are counted in a state_folder", *place)
        return self

    @model_validator(mode="after")
    def _trials_can_be_counted(self) -> Self:
        for number, run in enumerate(self.runs):
            telling = {
                spec.worker
                for spec in log_specs(run)
                if any(pattern.name.startswith(TRIAL) for pattern in spec.patterns)
            }
            for index, worker in enumerate(run.workers):
                if worker.trials_limit is not None and worker.name not in telling:
                    raise MisplacedError(
                        f"no log with `worker: {worker.name}` has a pattern named {TRIAL}…",
                        *("runs", number, "workers", index, "trials_limit"),
                    )
        return self

    @model_validator(mode="after")
    def _heartbeats_are_sound(self) -> Self:
        runs = {run.name for run in self.runs}
        seen: set[tuple[str | None, str]] = set()
        for index, one in enumerate(self.heartbeats):
            if one.run is not None and one.run not in runs:
                raise MisplacedError(f"no run is named {one.run}", "heartbeats", index, "run")
            if (one.run, one.name) in seen:
                message = f"another heartbeat of that run is named {one.name}"
                raise MisplacedError(message, "heartbeats", index, "name")
            seen.add((one.run, one.name))
        return self


def load_config(path: Path) -> Config:
    """The configuration in `path`. Raises ConfigError with every problem found."""
    return yamlfile.load(path, Config)
