"""A training run in exporter.yml: its location and what is observed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, StringConstraints, model_validator

from trainwarden_exporter.checkpoints.config import Checkpoints
from trainwarden_exporter.config_file.loader import LocatedError
from trainwarden_exporter.config_file.types import LocalPath
from trainwarden_exporter.containers.config import Containers
from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.inference.config import ServerConfig, check_servers
from trainwarden_exporter.logs.config import Logs, check_brakes, check_logs
from trainwarden_exporter.processes.config import RunWorkers
from trainwarden_exporter.progress.config import ProgressConfig
from trainwarden_exporter.rollouts.config import Rollouts

Variable = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^/\x00]+$")]


def _check_framework(framework: str) -> str:
    get_framework(framework)
    return framework


class RunConfig(RunWorkers):
    framework: Annotated[str, AfterValidator(_check_framework)] = "generic"
    """The framework whose layout of files and logs the run follows."""

    path: LocalPath | None = None
    """Base folder of the layout: the output folder of the framework."""

    variables: Mapping[str, Variable] = {}
    """Values of the names in braces in the layout's folders, such as the experiment and the
    trial. If a value is missing, the run with the most recent change in its folders is
    observed."""

    checkpoints: Checkpoints = ()
    """Checkpoints, in addition to those of the framework or instead of them."""

    copies: LocalPath | None = None
    """A second place, such as a mounted bucket, to which something copies the checkpoints; it
    mirrors `path`, or the part of it with the checkpoints. The copies are read and proved like the
    checkpoints themselves."""

    rollouts: Rollouts = ()
    """Rollouts and weights, in addition to those of the framework or instead of them."""

    logs: Logs = ()
    """Logs, in addition to those of the framework or instead of them."""

    progress: ProgressConfig = ProgressConfig()
    """Stall limits, and sources of the step besides the log."""

    containers: Containers = ()
    """Containers of the run."""

    inference: tuple[ServerConfig, ...] = ()
    """Inference servers; for servers behind a router, the router and each server."""

    @model_validator(mode="after")
    def _check_servers(self) -> Self:
        check_servers(self.inference, {worker.name for worker in self.workers})
        return self

    @model_validator(mode="after")
    def _check_copies(self) -> Self:
        if self.copies is None:
            return self
        if self.path is None:
            raise LocatedError("mirrors the run's path, which is not configured", "copies")
        if self.copies.is_relative_to(self.path) or self.path.is_relative_to(self.copies):
            raise LocatedError("must lie outside the run's path, and not contain it", "copies")
        return self

    @model_validator(mode="after")
    def _check_logs(self) -> Self:
        check_logs(
            self.logs,
            get_framework(self.framework),
            workers={worker.name for worker in self.workers},
            has_path=self.path is not None,
        )
        check_brakes(self.logs, get_framework(self.framework))
        return self


class AnnouncedRun(RunConfig):
    """A run whose path another account announced; no section of the file."""

    account: int
    """The account (uid); no more than it may read is read in the path."""
