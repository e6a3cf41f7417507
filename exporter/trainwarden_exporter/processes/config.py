"""What exporter.yml says of the workers of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Protocol, Self, TypeVar

from pydantic import Field, StringConstraints, model_validator

from trainwarden_exporter.processes.matching import Selector
from trainwarden_exporter.units import Bytes, Name, Seconds
from trainwarden_exporter.yamlfile import MisplacedError, Section


class WorkerConfig(Section):
    name: Name
    """Label `worker`."""

    role: Annotated[str, StringConstraints(min_length=1, max_length=100)] = "worker"
    """Label `role`: what the worker is for, in a word of your own."""

    match: Selector
    """Which processes are this worker."""

    expected: Annotated[int, Field(ge=0)] = 1
    """How many processes should run, children not counted."""

    memory_limit: Annotated[Bytes, Field(gt=0)] | None = None
    """Memory that the worker, children counted, should not pass."""

    age_limit: Annotated[Seconds, Field(gt=0)] | None = None
    """Age at which a worker that also grows should be started anew."""

    trials_limit: Annotated[int, Field(gt=0)] | None = None
    """Trials after which it should be started anew, as its log tells them: one that names it as its
    `worker`, by the lines of patterns named `trial_…`."""

    finishes: bool = False
    """Whether a process that ends with status 0 has finished, and is not missed."""

    pss: bool = False
    """Whether to measure PSS too: exact where memory is shared, about 1 ms a process."""


class WorkersOfRun(Section):
    """A run and its workers."""

    name: Name
    """Label `run`."""

    workers: tuple[WorkerConfig, ...] = ()

    @property
    def trainers(self) -> tuple[WorkerConfig, ...]:
        """Those that train."""
        return training(self.workers)

    @model_validator(mode="after")
    def _names_are_sound(self) -> Self:
        check_names(self.workers)
        check_references(self.workers)
        return self


class Named(Protocol):
    """What has a name and a role, as a worker has."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...


N = TypeVar("N", bound=Named)


def training(workers: Sequence[N]) -> tuple[N, ...]:
    """Those that train: by their role, else by their name.

    `worker` is the role of one that was given none, and so the trainer's where nobody else is: the
    workers of a search.
    """
    ways: tuple[Callable[[N], bool], ...] = (
        lambda one: one.role == "trainer",
        lambda one: one.name == "trainer",
        lambda one: one.role == "worker",
    )
    found = (tuple(filter(way, workers)) for way in ways)
    return next(filter(None, found), ())


def check_names(workers: Sequence[WorkerConfig]) -> None:
    """Raise MisplacedError (from the run) where two workers share a name."""
    seen: set[str] = set()
    for index, worker in enumerate(workers):
        if worker.name in seen:
            raise MisplacedError(f"another worker is named {worker.name}", "workers", index, "name")
        seen.add(worker.name)


def check_references(workers: Sequence[WorkerConfig]) -> None:
    """Raise MisplacedError (from the run) where a `descendant_of` names nobody or goes round."""
    above = {worker.name: worker.match.descendant_of for worker in workers}
    for index, worker in enumerate(workers):
        line = [worker.name]
        while (name := above[line[-1]]) is not None:
            place = ("workers", index, "match", "descendant_of")
            if name not in above:
                raise MisplacedError(f"no worker of this run is named {name}", *place)
            if name in line:
                circle = " → ".join([*line, name])
                raise MisplacedError(f"leads in a circle: {circle}", *place)
            line.append(name)
