"""What the exporter shows of the box in one scrape, as far as decisions rest on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwarden_exporter.processes.matching import WorkerKey


@dataclass(frozen=True, slots=True)
class WorkerSight:
    """One worker. None where the exporter shows nothing."""

    processes: float
    expected: float
    resident_bytes: float
    finished: bool
    started_at: float | None
    """Unix seconds; that of its oldest living process."""
    memory_limit_bytes: float | None
    age_limit_seconds: float | None
    trials: float | None = None
    """That it has ended since it started."""
    trials_limit: float | None = None


@dataclass(frozen=True, slots=True)
class ServerSight:
    """One inference server. Times are Unix seconds; None where the exporter shows nothing."""

    name: str
    worker: str
    """The worker that serves it."""
    role: str
    """What it is for."""
    up: bool
    reason: str
    """Why it is up or not, in the exporter's word for it; empty where it gives none."""
    since: float | None = None
    """Since when that is so."""
    answered: bool | None = None
    """Whether it answered the last request for a real token,"""
    asked_at: float | None = None
    """made at that time."""
    failures: float = 0.0
    """How many of these have failed in a row."""
    worked_at: float | None = None
    """When it was last seen to get something done."""
    start_grace: float = 0.0
    """Seconds that its engine may take to start."""
    seen_at: float | None = None


@dataclass(frozen=True, slots=True)
class RunSight:
    """How far a run has come. Times are Unix seconds; None where the exporter shows nothing."""

    step: float | None = None
    """Steps done."""
    last_step_at: float | None = None
    progress_at: float | None = None
    """The last sign of progress: a step, or a change of phase."""
    stall_limit: float | None = None
    """Seconds it may be without one in its present phase."""
    phase: str = ""
    finished: bool = False
    resume_step: float | None = None
    """The step that it last resumed from,"""
    first_step: float | None = None
    """and the first that it made then."""
    checkpoint: float | None = None
    """The step of the newest complete checkpoint,"""
    checkpoint_at: float | None = None
    """and when it became so."""
    checkpoints: float | None = None
    """How many complete ones there are; None where none are watched."""
    checkpoints_seen_at: float | None = None
    saving: bool = False
    """Whether one is being written."""
    recovery_matches: bool | None = None
    """Whether the record it would resume from is whole and fits the newest complete checkpoint."""
    saves_unknown: str = ""
    """Why it cannot be told whether a checkpoint of it is being written, or nothing."""


@dataclass(frozen=True, slots=True)
class DiskSight:
    """One disk, by the path it is watched by. None where the exporter shows nothing."""

    path: str
    up: bool = True
    """Whether it can be looked at, and answers."""
    size: float | None = None
    free: float | None = None
    inodes: float | None = None
    free_inodes: float | None = None
    read_only: bool = False
    seen_at: float | None = None
    runs: frozenset[str] = frozenset()
    """The runs that keep checkpoints there."""


@dataclass(frozen=True, slots=True)
class BrakeSight:
    """A brake within a worker that ends what it has begun, as its log tells of it."""

    streak: float
    """How often in a row."""
    last_at: float
    """When last, in Unix seconds."""


@dataclass(frozen=True, slots=True)
class Sight:
    """All of it."""

    workers: Mapping[WorkerKey, WorkerSight]
    memory_available_bytes: float
    memory_floor_bytes: float
    gpu_orphans: float | None = None
    """Holds on GPUs by processes of no worker; None where the exporter cannot tell."""
    servers: Mapping[str, tuple[ServerSight, ...]] = field(default_factory=dict)
    """The inference servers of each run."""
    runs: Mapping[str, RunSight] = field(default_factory=dict)
    disks: tuple[DiskSight, ...] = ()
    brakes: Mapping[WorkerKey, BrakeSight] = field(default_factory=dict)
    """The brakes of which the logs of workers tell."""
    memory_stalled: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Seconds in which some or all processes have waited for memory so far, by scope and kind."""
    booted_at: float | None = None
    """When the machine was booted, in Unix seconds."""
    collectors_failing: float = 0.0
    """The share of the exporter's collectors that fail."""
    saves_unknown: str = ""
    """Why it cannot be told of any run whether a checkpoint is being written, or nothing."""

    def saves_unknown_of(self, run: str) -> str:
        """Why it cannot be told whether a checkpoint of `run` is being written, or nothing."""
        return self.saves_unknown or self.runs.get(run, RunSight()).saves_unknown

    def servers_of(self, key: WorkerKey) -> tuple[ServerSight, ...]:
        """The inference servers that a worker serves."""
        return tuple(one for one in self.servers.get(key.run, ()) if one.worker == key.worker)
