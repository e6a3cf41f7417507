"""Configuration of a run's workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Annotated, Protocol, Self, TypeVar

from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator

from trainwarden_exporter.config_file.loader import LocatedError, Section, unique_by
from trainwarden_exporter.config_file.types import Name, Seconds, Space
from trainwarden_exporter.processes.accounts import find_uid
from trainwarden_exporter.processes.matching import Selector, WorkerKey


class WorkerConfig(Section):
    name: Name
    """Label `worker`."""

    role: Annotated[str, StringConstraints(min_length=1, max_length=100)] = "worker"
    """Label `role`: purpose of the worker, freely chosen."""

    match: Selector
    """Selects the processes of this worker."""

    expected: Annotated[int, Field(ge=0)] = 1
    """Expected number of processes, without descendants."""

    memory_limit: Annotated[Space, Field(gt=0)] | None = None
    """Memory limit of the worker, including descendants."""

    age_limit: Annotated[Seconds, Field(gt=0)] | None = None
    """Age at which a worker whose memory grows should be restarted."""

    trials_limit: Annotated[int, Field(gt=0)] | None = None
    """Number of trials after which the worker should be restarted. Trials are counted in the
    log that names the worker in `worker`, by lines of patterns named `trial_…`."""

    finishes: bool = False
    """Whether a process that ends with status 0 has finished and does not count as missing."""

    pss: bool = False
    """Whether to measure PSS too: exact for shared memory, costs about 1 ms per process."""


class RunWorkers(Section):
    name: Name
    """Label `run`."""

    user: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Account of the run's workers, by name or number: processes of other accounts do not count.
    `user` in the `match` of a worker overrides it; default: any account."""

    workers: tuple[WorkerConfig, ...] = ()

    @field_validator("workers")
    @classmethod
    def _apply_user(
        cls, workers: tuple[WorkerConfig, ...], info: ValidationInfo
    ) -> tuple[WorkerConfig, ...]:
        user = info.data.get("user")
        return tuple(
            one
            if user is None or one.match.user is not None
            else one.model_copy(update={"match": one.match.model_copy(update={"user": user})})
            for one in workers
        )

    @property
    def trainers(self) -> tuple[WorkerConfig, ...]:
        """The workers that make training steps."""
        return select_trainers(self.workers)

    @model_validator(mode="after")
    def _check_worker_names(self) -> Self:
        unique_by(self.workers, "name", "worker", "workers")
        check_references(self.workers)
        return self


def workers_by_key(runs: Iterable[RunWorkers]) -> dict[WorkerKey, WorkerConfig]:
    return {WorkerKey(run.name, worker.name): worker for run in runs for worker in run.workers}


def hash_workers(runs: Iterable[RunWorkers]) -> int:
    """Returns a hash of the part of the configuration that decides which processes a worker has.

    48 bits, so that it is exact as the value of a metric (a float64), as the `config_hash` of
    Alertmanager.
    """
    return _hash([_describe(key, worker) for key, worker in workers_by_key(runs).items()])


def hash_workers_by_run(
    runs: Collection[RunWorkers], announced: Collection[WorkerKey] = ()
) -> dict[str, int]:
    """Returns for each run the hash of the workers that can find a process of its accounts.

    A process has one account, so a worker with another `user` finds none of the run: what another
    account announces does not change the hash. Nor does a worker that is `announced` for another
    run: it finds the process of its announcement alone, and an action here must not end whenever
    another run begins or ends. Blocks: looks up the names of accounts.
    """
    users = {worker.match.user for run in runs for worker in run.workers}
    uids = {user: find_uid(user) for user in users}  # None: any account
    rows = {
        key: (uids[worker.match.user], _describe(key, worker))
        for key, worker in workers_by_key(runs).items()
    }
    of_all = {key: row for key, row in rows.items() if key not in announced}
    found: dict[str, int] = {}
    for run in runs:
        keys = [WorkerKey(run.name, one.name) for one in run.workers]
        own = {rows[key][0] for key in keys}
        counted = of_all | {key: rows[key] for key in keys}
        found[run.name] = _hash(
            [
                row
                for _, (uid, row) in sorted(counted.items())
                if None in own or uid in own or uid is None
            ]
        )
    return found


def _describe(key: WorkerKey, worker: WorkerConfig) -> tuple[object, ...]:
    return (*key, worker.match.model_dump(mode="json", exclude_none=True), worker.expected)


def _hash(content: Sequence[tuple[object, ...]]) -> int:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:6], "big")


class RoleBearer(Protocol):
    """Anything with a name and a role, such as a worker."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...


N = TypeVar("N", bound=RoleBearer)


def select_trainers(workers: Sequence[N]) -> tuple[N, ...]:
    """Selects the workers that train: by role, else by name.

    `worker` is the default role, so workers with it count as trainers if there are no others, as in
    a search.
    """
    ways: tuple[Callable[[N], bool], ...] = (
        lambda one: one.role == "trainer",
        lambda one: one.name == "trainer",
        lambda one: one.role == "worker",
    )
    found = (tuple(filter(way, workers)) for way in ways)
    return next(filter(None, found), ())


def check_references(workers: Sequence[WorkerConfig]) -> None:
    """Raises LocatedError (relative to the run) for an unknown or cyclic `descendant_of`."""
    above = {worker.name: worker.match.descendant_of for worker in workers}
    for index, worker in enumerate(workers):
        line = [worker.name]
        while (name := above[line[-1]]) is not None:
            place = ("workers", index, "match", "descendant_of")
            if name not in above:
                raise LocatedError(f"no worker of this run has the name {name}", *place)
            if name in line:
                circle = " → ".join([*line, name])
                raise LocatedError(f"cycle: {circle}", *place)
            line.append(name)
