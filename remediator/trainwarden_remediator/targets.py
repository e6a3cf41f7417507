"""What may be acted upon, by which means, and how often."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Self

from pydantic import Field, model_validator

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.selector import ChoosingPattern
from trainwarden_exporter.units import Name, Seconds
from trainwarden_exporter.yamlfile import MisplacedError, Section
from trainwarden_remediator.means.base import Means
from trainwarden_remediator.means.command import CommandTarget
from trainwarden_remediator.means.docker import DockerTarget
from trainwarden_remediator.means.kubernetes import KubernetesTarget
from trainwarden_remediator.means.process import ProcessTarget
from trainwarden_remediator.means.saverequest import SaveRequest
from trainwarden_remediator.means.slurm import SlurmTarget
from trainwarden_remediator.means.supervisor import SupervisorTarget
from trainwarden_remediator.means.systemd import SystemdTarget

BACKOFF_LIMIT = 32
"""A cooldown grows to this many times the configured one and no further."""


def wait_after(actions: int, cooldown: float) -> float:
    """Seconds to wait after so many actions; each doubles the wait, up to a limit."""
    return cooldown * min(1 << max(actions - 1, 0), BACKOFF_LIMIT)


class Budget(Section):
    """How often something may be acted upon."""

    cooldown: Seconds = 120
    """Least time between two actions on it; doubled with each one in the window."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Actions on it within `attempts_window`; then a person is called instead."""
    attempts_window: Annotated[Seconds, Field(gt=0)] = 3600
    """Time over which actions on it are counted."""

    @model_validator(mode="after")
    def _attempts_run_out(self) -> Self:
        """Attempts that never run out would go on for ever without a person being called."""
        waits = sum(wait_after(tried, self.cooldown) for tried in range(1, self.attempts))
        if waits >= self.attempts_window:
            raise MisplacedError(
                f"with a cooldown of {self.cooldown:g} s so many take {waits:g} s, more than "
                f"attempts_window ({self.attempts_window:g} s): they would never run out",
                "attempts",
            )
        return self

    @property
    @abstractmethod
    def key(self) -> WorkerKey:
        """What journal and metrics know it by."""

    @property
    def keys(self) -> tuple[WorkerKey, ...]:
        """All that it is about, what it is known by first."""
        return (self.key,)


MEANS = ("process", "systemd", "docker", "supervisor", "kubernetes", "slurm", "command")
"""Of these a target has exactly one."""


class Target(Budget):
    """A worker that may be acted upon. No other ever is."""

    run: Name
    """Its run, as the exporter's file names it."""
    worker: Name
    """Its name there."""
    also: tuple[Name, ...] = ()
    """Other workers of the run that are restarted with it, such as the other ranks of a job: an
    alert about any of them is about this one target, and all must be well after it."""
    process: ProcessTarget | None = None
    """It is restarted as a plain process. A target has exactly one of these means."""
    systemd: SystemdTarget | None = None
    """It is restarted as a unit of systemd."""
    docker: DockerTarget | None = None
    """It is restarted as a container of Docker."""
    supervisor: SupervisorTarget | None = None
    """It is restarted as a program of supervisord."""
    kubernetes: KubernetesTarget | None = None
    """It is restarted as a pod of Kubernetes."""
    slurm: SlurmTarget | None = None
    """It is restarted as a job of Slurm."""
    command: CommandTarget | None = None
    """It is restarted by a command of your own."""
    save: SaveRequest | None = None
    """How it is asked for a last checkpoint before it is restarted, where it runs; it is not when
    not given."""
    save_patience: Seconds = 600
    """How long a checkpoint that is being written may put off ending it, if it makes the steps of
    its run (by its role `trainer`): the SIGTERM, and then again the SIGKILL."""
    fruitless_restarts: Annotated[int, Field(ge=1, le=100)] = 3
    """Restarts in a row that have brought the run no further (no newer step, no newer checkpoint)
    after which it is not restarted again, and a person is called instead."""

    @model_validator(mode="after")
    def _by_one_means(self) -> Self:
        given = [name for name in MEANS if getattr(self, name) is not None]
        if len(given) != 1:
            said = f"both {given[0]} and {given[1]} say" if given else "nothing says"
            raise MisplacedError(
                f"{said} how it is restarted; give one of {', '.join(MEANS)}",
                *given[1:2],
            )
        return self

    @model_validator(mode="after")
    def _workers_are_distinct(self) -> Self:
        for index, worker in enumerate(self.also):
            if worker in (self.worker, *self.also[:index]):
                raise MisplacedError(f"worker {worker} is named already", "also", index)
        return self

    @property
    def key(self) -> WorkerKey:
        return WorkerKey(self.run, self.worker)

    @property
    def keys(self) -> tuple[WorkerKey, ...]:
        """All its workers, the one that it is known by first."""
        return tuple(WorkerKey(self.run, worker) for worker in (self.worker, *self.also))

    @property
    def means(self) -> Means:
        """How it is restarted."""
        found: Means = next(means for name in MEANS if (means := getattr(self, name)) is not None)
        return found


GPUS = WorkerKey("", "gpus")
"""What journal and metrics know the GPUs of the box by."""


PERSON = WorkerKey("", "person")
"""What the journal knows a person by who was called."""


class GpuCleanup(Budget):
    """Lets processes be ended that hold a GPU and belong to no worker: leftovers of a dead run.

    Never one of a worker of the exporter's file, nor one that it protects.
    """

    owners: tuple[Name, ...] = ()
    """Only processes of these accounts; of any account when none is named."""
    command: ChoosingPattern | None = None
    """Only processes in whose command line this regular expression is found."""
    min_age: Seconds = 30
    """Only processes that have run for this long: a run that starts is no leftover."""
    grace: Seconds = 3
    """Seconds between SIGTERM and SIGKILL: what is left over has no work to put away."""
    memory_back_within: Seconds = 30
    """How long the driver may take to give the memory of ended processes back."""

    @property
    def key(self) -> WorkerKey:
        return GPUS
