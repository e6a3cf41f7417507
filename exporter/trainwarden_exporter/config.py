"""The shape of exporter.yml."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import model_validator

from trainwarden_exporter import yamlfile
from trainwarden_exporter.collectors.gpu import GpuConfig
from trainwarden_exporter.collectors.host import HostConfig
from trainwarden_exporter.collectors.workers import RunConfig
from trainwarden_exporter.units import LocalPath
from trainwarden_exporter.yamlfile import MisplacedError, Section


class Config(Section):
    """A whole exporter.yml. An empty file is a good one: it watches the host alone."""

    host: HostConfig = HostConfig()
    """The machine, or the container that stands for it."""

    gpu: GpuConfig = GpuConfig()
    """The GPUs of the machine, those of NVIDIA."""

    state_folder: LocalPath | None = None
    """Where the exporter keeps what must outlive it: which workers have finished. Without it, a
    finished worker looks gone after a restart of the exporter."""

    runs: tuple[RunConfig, ...] = ()
    """The training runs on it, each with its workers."""

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


def load_config(path: Path) -> Config:
    """The configuration in `path`. Raises ConfigError with every problem found."""
    return yamlfile.load(path, Config)
