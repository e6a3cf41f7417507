"""Targets of actions: their restart methods and budgets."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from trainwarden_exporter.config_file.loader import LocatedError, Section
from trainwarden_exporter.config_file.types import Name, Seconds
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.selector import SelectivePattern
from trainwarden_remediator.config.restart_methods.base import RestartMethod, SaveRequest
from trainwarden_remediator.config.restart_methods.command import CommandTarget
from trainwarden_remediator.config.restart_methods.docker import DockerTarget
from trainwarden_remediator.config.restart_methods.kubernetes import KubernetesTarget
from trainwarden_remediator.config.restart_methods.process import ProcessTarget
from trainwarden_remediator.config.restart_methods.run import RunTarget
from trainwarden_remediator.config.restart_methods.slurm import SlurmTarget
from trainwarden_remediator.config.restart_methods.supervisor import SupervisorTarget
from trainwarden_remediator.config.restart_methods.systemd import SystemdTarget

BACKOFF_LIMIT = 32
"""The maximum cooldown, as a multiple of the configured one."""


def cooldown_after(actions: int, cooldown: float) -> float:
    """Returns the seconds to wait after so many actions; each doubles the wait, up to a limit."""
    return cooldown * min(1 << max(actions - 1, 0), BACKOFF_LIMIT)


class Budget(Section):
    """How often the remediator may act on a target."""

    cooldown: Seconds = 120
    """Minimum time between two actions on the target; doubles with each action in the window."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Maximum number of actions on the target within `attempts_window`; then an operator is
    called."""
    attempts_window: Annotated[Seconds, Field(gt=0)] = 3600
    """Time window over which actions are counted."""

    @model_validator(mode="after")
    def _attempts_run_out(self) -> Self:
        """Rejects attempts that never run out: no operator would ever be called."""
        waits = sum(cooldown_after(tried, self.cooldown) for tried in range(1, self.attempts))
        if waits >= self.attempts_window:
            raise LocatedError(
                f"with a cooldown of {self.cooldown:g} s, {self.attempts} attempts take "
                f"{waits:g} s, longer than attempts_window ({self.attempts_window:g} s): "
                "they would never run out",
                "attempts",
            )
        return self

    @property
    @abstractmethod
    def key(self) -> WorkerKey:
        """The name of the target in the journal and the metrics."""

    @property
    def keys(self) -> tuple[WorkerKey, ...]:
        """All workers of the target; `key` is the first."""
        return (self.key,)

    @property
    def account(self) -> int | None:
        """The uid of another account that announces it; None for root and this program's own."""
        return None


RESTART_METHODS = ("process", "systemd", "docker", "supervisor", "kubernetes", "slurm", "command")
"""The restart method fields of a target; exactly one is set."""


class Target(Budget):
    """A worker that the remediator may act on. It never acts on any other worker."""

    renamed_keys: ClassVar[Mapping[str, str]] = {
        "also": "additional_workers",
        "save_patience": "max_save_delay",
        "fruitless_restarts": "max_restarts_without_progress",
    }

    run: Name
    """The name of the run in the exporter's file."""
    worker: Name
    """The name of the worker in the exporter's file."""
    additional_workers: tuple[Name, ...] = ()
    """Other workers of the run that restart together with this one, such as the other ranks of a
    job. An alert about any of them applies to this target, and all must be healthy afterwards."""
    process: ProcessTarget | None = None
    """Restart method: a plain process. A target has exactly one restart method."""
    systemd: SystemdTarget | None = None
    """Restart method: a systemd service."""
    docker: DockerTarget | None = None
    """Restart method: a Docker container."""
    supervisor: SupervisorTarget | None = None
    """Restart method: a supervisord program."""
    kubernetes: KubernetesTarget | None = None
    """Restart method: a Kubernetes pod."""
    slurm: SlurmTarget | None = None
    """Restart method: a Slurm job."""
    command: CommandTarget | None = None
    """Restart method: a command of your own."""
    save: SaveRequest | None = None
    """How to request a checkpoint from the running worker before its restart; default: no
    request."""
    max_save_delay: Seconds = 600
    """For a worker with the role `trainer`: how long a checkpoint that is being written may delay
    its termination (the SIGTERM, and again the SIGKILL)."""
    max_restarts_without_progress: Annotated[int, Field(ge=1, le=100)] = 3
    """Maximum number of consecutive restarts after which the run has no newer step or checkpoint;
    then an operator is called."""

    @model_validator(mode="after")
    def _has_one_restart_method(self) -> Self:
        given = [name for name in RESTART_METHODS if getattr(self, name) is not None]
        if len(given) != 1:
            message = f"both {given[0]} and {given[1]} are set" if given else "no restart method"
            raise LocatedError(
                f"{message}; set exactly one of {', '.join(RESTART_METHODS)}", *given[1:2]
            )
        return self

    @model_validator(mode="after")
    def _workers_are_distinct(self) -> Self:
        for index, worker in enumerate(self.additional_workers):
            if worker in (self.worker, *self.additional_workers[:index]):
                raise LocatedError(f"duplicate worker {worker}", "additional_workers", index)
        return self

    @property
    def key(self) -> WorkerKey:
        return WorkerKey(self.run, self.worker)

    @property
    def keys(self) -> tuple[WorkerKey, ...]:
        """All workers of the target; `worker` is the first."""
        return tuple(WorkerKey(self.run, name) for name in (self.worker, *self.additional_workers))

    @property
    def can_be_restarted(self) -> bool:
        """Whether anything could start it, so far as that is known without a request."""
        return True

    @property
    def why_ended(self) -> str:
        """Why it cannot be restarted, if so."""
        return ""

    @property
    def has_finished(self) -> bool:
        """Whether its command announces that it has done its work."""
        return False

    @property
    def restart_method(self) -> RestartMethod:
        found: RestartMethod = next(
            restart_method
            for name in RESTART_METHODS
            if (restart_method := getattr(self, name)) is not None
        )
        return found


class AnnouncedTarget(Target):
    """A worker that `trainwarden run` announces; it needs no entry in remediator.yml."""

    announced: RunTarget

    @model_validator(mode="after")
    def _has_one_restart_method(self) -> Self:
        return self

    @property
    def can_be_restarted(self) -> bool:
        return not self.announced.wrapper_ended

    @property
    def why_ended(self) -> str:
        return self.announced.why_ended

    @property
    def has_finished(self) -> bool:
        return self.announced.finished

    @property
    def account(self) -> int | None:
        owner = self.announced.owner
        return None if owner in (0, os.geteuid()) else owner

    @property
    def restart_method(self) -> RestartMethod:
        return self.announced


GPUS = WorkerKey("", "gpus")
"""The name of the host's GPUs in the journal and the metrics."""

ON_CALL = WorkerKey("", "on-call")
"""The name of the on-call operator in the journal."""


class GpuCleanup(Budget):
    """Allows to terminate processes that hold a GPU and belong to no worker (leftovers of a run).

    Processes of a worker in the exporter's file, and processes that the file protects, are never
    terminated.
    """

    renamed_keys: ClassVar[Mapping[str, str]] = {"memory_back_within": "gpu_memory_release_timeout"}

    owners: tuple[Name, ...] = ()
    """Terminate only processes of these accounts, by name or number; default: the accounts of the
    runs in the exporter's file (`user`) and the account of the remediator. Leftovers of other
    accounts are reported."""
    command: SelectivePattern | None = None
    """Terminate only processes with a command line that this regular expression matches."""
    min_age: Seconds = 30
    """Terminate only processes at least this old: a run that starts is not a leftover."""
    grace: Seconds = 3
    """Seconds between SIGTERM and SIGKILL."""
    gpu_memory_release_timeout: Seconds = 30
    """How long to wait for the driver to release the GPU memory of terminated processes."""

    @property
    def key(self) -> WorkerKey:
        return GPUS
