"""A training run in exporter.yml: where it lies, and what of it is watched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, StringConstraints, model_validator

from trainwarden_exporter.checkpoints.config import Checkpoints
from trainwarden_exporter.collectors.containers import Containers
from trainwarden_exporter.inference.config import ServerConfig, check_servers
from trainwarden_exporter.layouts import layout
from trainwarden_exporter.logs.config import Logs, check_logs
from trainwarden_exporter.processes.config import WorkersOfRun
from trainwarden_exporter.progress.config import ProgressConfig
from trainwarden_exporter.rollouts.config import Rollouts
from trainwarden_exporter.units import LocalPath

Variable = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^/\x00]+$")]


def _known(framework: str) -> str:
    layout(framework)
    return framework


class RunConfig(WorkersOfRun):
    framework: Annotated[str, AfterValidator(_known)] = "generic"
    """The layout by which its traces are read."""

    path: LocalPath | None = None
    """The folder that the layout starts from: where the framework puts all that it writes."""

    variables: Mapping[str, Variable] = {}
    """What the names in braces in the layout's folders stand for, such as the experiment and the
    trial; where one is not given, the run in whose folders something changed last is watched."""

    checkpoints: Checkpoints = ()
    """Its checkpoints, beside those of its framework, or in place of those."""

    rollouts: Rollouts = ()
    """Its batches and weights, beside those of its framework, or in place of those."""

    logs: Logs = ()
    """Its logs, beside those of its framework, or in place of those."""

    progress: ProgressConfig = ProgressConfig()
    """When it counts as stalled, and from where its step is read besides its log."""

    containers: Containers = ()
    """The containers it runs in."""

    inference: tuple[ServerConfig, ...] = ()
    """Its inference servers; of many behind a router, the router and each of them."""

    @model_validator(mode="after")
    def _servers_are_sound(self) -> Self:
        check_servers(self.inference, {worker.name for worker in self.workers})
        return self

    @model_validator(mode="after")
    def _logs_are_sound(self) -> Self:
        check_logs(
            self.logs,
            layout(self.framework),
            workers={worker.name for worker in self.workers},
            has_path=self.path is not None,
        )
        return self
