"""The state of the host in one scrape of the exporter, as far as decisions rest on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.step_dirs.names import counts_epochs

START_TOLERANCE_SECONDS = 2.0
"""Seconds by which a start may seem to precede its intent: the clock is read twice."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One worker. None: the exporter does not show the value."""

    processes: float
    expected: float
    memory_bytes: float
    """Shared pages count once, if the exporter shows so."""
    finished: bool
    started_at: float | None
    """Start of its oldest living process, in Unix seconds."""
    memory_limit_bytes: float | None
    age_limit_seconds: float | None
    trials: float | None = None
    """Trials completed since its start."""
    trials_limit: float | None = None
    last_exit_code: float | None = None
    """Exit code of the last observed exit; 128+n for signal n."""
    last_exit_at: float | None = None
    """When that exit was observed, in Unix seconds."""
    unconfirmed: float = 0.0
    """Absent processes without a sign of a failure."""
    stopped: float = 0.0
    """Processes that a signal (SIGSTOP) or a debugger has stopped, including descendants."""

    @property
    def missing(self) -> bool:
        """Whether processes are absent, with a sign that they failed."""
        return self.processes + self.unconfirmed < self.expected and not self.finished


@dataclass(frozen=True, slots=True)
class ServerState:
    """One inference server. Times are Unix seconds; None: the exporter does not show the value."""

    name: str
    worker: str
    """The worker that runs the server."""
    role: str
    up: bool
    reason: str
    """The exporter's reason for `up`; empty without one."""
    since: float | None = None
    """When the server entered this state."""
    answered: bool | None = None
    """Whether the last completion probe succeeded."""
    asked_at: float | None = None
    """When that probe was made."""
    failures: float = 0.0
    """Consecutive failed completion probes."""
    worked_at: float | None = None
    """When the server was last seen to make progress."""
    start_grace: float = 0.0
    """Seconds that the server may take to start."""
    seen_at: float | None = None
    engine: str = ""
    """Its type, as the exporter names it."""


@dataclass(frozen=True, slots=True)
class RunState:
    """The progress of a run. Times are Unix seconds; None: the exporter does not show the value."""

    step: float | None = None
    """Steps done."""
    total_steps: float | None = None
    last_step_at: float | None = None
    usual_step_seconds: float | None = None
    """Median time of a step."""
    progress_at: float | None = None
    """Time of the last step or change of phase."""
    stall_limit: float | None = None
    """Seconds that the run may take without progress in its present phase,"""
    pause_limit: float | None = None
    """and the same without other signs of a problem: no shorter than its harmless pauses were."""
    phase: str = ""
    trainer_processes: float | None = None
    """Number of processes of its trainer."""
    last_step_made: bool = False
    """Whether it has made its last step: what follows shows no sign of progress."""
    finished: bool = False
    unended: str = ""
    """What the processes of a finished run wait for, which have not ended; empty if unknown."""
    resume_step: float | None = None
    """The step from which the run last resumed."""
    first_step: float | None = None
    """The first step after that resume that was observed."""
    resume_checkpoint: float | None = None
    """The step of its newest proved checkpoint at that resume."""
    step_spacing: float | None = None
    """The least difference of two observed steps; above 1, not every step is."""
    steps_repeated: float | None = None
    """Steps that were lost by all its resumes and made again."""
    restart_limit: float | None = None
    """Seconds after which silence alone justifies a restart; infinite while the pace is unknown."""
    stuck: bool = False
    """Whether the stacks of its processes show that it is stuck,"""
    moving: bool = False
    """or that it moves,"""
    awake: bool = False
    """or that it sleeps for a moment at a time,"""
    undecided: bool = False
    """or whether they were looked at for too short a time since a start of the exporter."""
    waits: str = ""
    """Which of its processes waits for what, as one line; empty if no stacks show that."""
    at_prompt: bool = False
    """Whether one of its processes waits for an operator, at a terminal or in a debugger."""
    trials: float | None = None
    """Finished trials of a search in its storage, from which it resumes; None without any."""
    checkpoint: float | None = None
    """The step of the newest complete checkpoint; of a search, the number of its trials."""
    checkpoint_at: float | None = None
    """When that checkpoint was completed."""
    incomplete_step: float | None = None
    """The step of the incomplete checkpoint that is newer than the newest complete one,"""
    incomplete: str = ""
    """and its name; empty if unknown."""
    proved_step: float | None = None
    """The step of the newest proved checkpoint."""
    unproved_step: float | None = None
    """The step of the oldest complete one after it that is not read yet; None without one."""
    proved_checkpoint: str = ""
    """The path of the newest proved checkpoint; empty if none is proved."""
    damaged_checkpoints: frozenset[str] = frozenset()
    """The paths of the damaged checkpoints."""
    resume_problem: str = ""
    """What is wrong with the checkpoint that a resume takes; empty if none is known."""
    checkpoints: float | None = None
    """Number of complete checkpoints; None if none are configured."""
    checkpoints_end_unknown: float = 0.0
    """Of these, how many were read and do not show whether they were cut short."""
    checkpoint_bytes: float | None = None
    """Size of the newest complete checkpoint."""
    disk_full_at: float | None = None
    """When its logs last had the error that no space is left."""
    checkpoints_seen_at: float | None = None
    saving: bool = False
    """Whether a checkpoint is being written."""
    saving_since: float | None = None
    """First write to the newest checkpoint, if it is incomplete."""
    save_seconds: float | None = None
    """Time from the first to the last write of the newest complete checkpoint."""
    recovery_matches: bool | None = None
    """Whether the recovery record is complete and matches the newest complete checkpoint."""
    saves_unknown: str = ""
    """Why it is unknown whether a checkpoint is being written, or ""."""
    interruption_start: float | None = None
    """The last new step before the run was last down or stalled."""
    interruption_end: float | None = None
    """The next new step; None while there is none."""
    interruption_steps: float | None = None
    """Steps that were made again in between."""
    effective_seconds: float | None = None
    """Time that went into new steps, evaluations and saves, of the
    `counted_seconds` that the exporter watched the run before its end."""
    counted_seconds: float | None = None
    paused_seconds: float | None = None
    """The part of `effective_seconds` without a step, longer than a slow step takes."""
    attempts: str = ""
    """How the last attempts ended, if alike."""
    finite_until: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By log and name, the last step with a finite value, of each value that is not finite."""

    @property
    def loss_finite_until(self) -> float | None:
        """The last step with a finite loss, if the last loss is not finite."""
        steps = (step for (_, name), step in self.finite_until.items() if "loss" in name)
        return min(steps, default=None)

    @property
    def saves_spoilt(self) -> bool:
        """Whether it goes on, and has saved since its loss became NaN or infinite."""
        until = self.loss_finite_until
        if self.finished or until is None or counts_epochs(self.proved_checkpoint):
            return False
        return (self.checkpoint or 0.0) > until

    @property
    def spoilt(self) -> Mapping[str, object]:
        """The facts about a loss that is not finite at its end; empty if it is finite."""
        until = self.loss_finite_until
        none = {"nothing_saved": True} if self.sound_checkpoint(until) is None else {}
        return {} if until is None else {"finite_until": until, **none}

    def sound_checkpoint(self, until: float | None) -> str | None:
        """Returns the newest proved checkpoint if it is from step `until` or before, else "".

        Also "" as long as a newer one from before `until` is not read yet. None if none is
        complete.
        """
        if self.checkpoints_seen_at is not None and not self.checkpoints:
            return None
        if until is None or self.proved_step is None or self.proved_step > until:
            return ""
        if counts_epochs(self.proved_checkpoint):  # an epoch is compared with no step
            return ""
        if self.unproved_step is not None and self.unproved_step <= until:
            return ""
        return self.proved_checkpoint

    @property
    def ends(self) -> bool:
        """Whether it has made its last step, and its stacks do not show that it hangs."""
        return self.last_step_made and not self.stuck

    @property
    def observed(self) -> bool:
        """Whether the exporter observes the run's steps."""
        return self.stall_limit is not None or self.progress_at is not None


@dataclass(frozen=True, slots=True)
class DiskState:
    """One disk, by its configured path. None: the exporter does not show the value."""

    path: str
    up: bool = True
    """Whether the file system responds."""
    size: float | None = None
    free: float | None = None
    inodes: float | None = None
    free_inodes: float | None = None
    read_only: bool = False
    seen_at: float | None = None
    runs: frozenset[str] = frozenset()
    """The runs with checkpoints on this disk."""
    checkpoints_left: Mapping[str, float] = field(default_factory=dict)
    """How many more checkpoints of each of them fit."""
    free_floor: float | None = None
    """Bytes that should stay free."""


@dataclass(frozen=True, slots=True)
class EmergencyBrakeState:
    """The emergency brake of a worker, which aborts its work in progress, as logged."""

    streak: float
    """Consecutive activations."""
    last_at: float
    """Time of the last activation, in Unix seconds."""


@dataclass(frozen=True, slots=True)
class ExporterState:
    """The state of the host that one scrape shows."""

    workers: Mapping[WorkerKey, WorkerState]
    memory_available_bytes: float
    memory_floor_bytes: float
    gpu_orphans: float | None = None
    """Number of GPU holders that belong to no worker; None if unknown."""
    servers: Mapping[str, tuple[ServerState, ...]] = field(default_factory=dict)
    """The inference servers of each run."""
    runs: Mapping[str, RunState] = field(default_factory=dict)
    disks: tuple[DiskState, ...] = ()
    emergency_brakes: Mapping[WorkerKey, EmergencyBrakeState] = field(default_factory=dict)
    """The emergency brakes in the logs of workers."""
    memory_stalled: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Total seconds that some or all processes have waited for memory, by scope and kind."""
    oom_killed_at: float | None = None
    """When the last kill by the OOM killer was observed, in Unix seconds; 0 if none was, None if
    they are not observed."""
    booted_at: float | None = None
    """When the host was booted, in Unix seconds."""
    collectors_failing: float = 0.0
    """Share of the exporter's collectors that fail, from 0 to 1."""
    workers_hash: float | None = None
    """The hash of the workers that the exporter has loaded; None from an exporter that shows none,
    and from local observation."""
    run_hashes: Mapping[str, float] = field(default_factory=dict)
    """The same for each run, of the workers that can find a process of its accounts; empty from an
    exporter that shows only the hash of all."""
    saves_unknown: str = ""
    """Why it is unknown for all runs whether a checkpoint is being written, or ""."""
    ended_runs: frozenset[str] = frozenset()
    """The runs that have finished, also those without a step."""

    last_lines: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    """When the last line of each run, log and pattern was read, in Unix seconds."""

    @property
    def all_runs(self) -> Mapping[str, RunState]:
        """The runs, also those without a step, which only their workers show."""
        own: dict[str, list[WorkerState]] = {}
        for key, worker in self.workers.items():
            own.setdefault(key.run, []).append(worker)
        others = own.keys() - self.runs.keys() - {""}
        found = {
            run: run in self.ended_runs or all(one.finished for one in own[run])
            for run in sorted(others)
        }
        return {**self.runs, **{run: RunState(finished=ended) for run, ended in found.items()}}

    @property
    def finished_runs(self) -> frozenset[str]:
        return frozenset(name for name, run in self.runs.items() if run.finished)

    @property
    def ending_runs(self) -> frozenset[str]:
        """The runs that have made their last step, and have not ended."""
        runs = self.runs.items()
        return frozenset(name for name, run in runs if run.last_step_made and not run.finished)

    @property
    def dead_runs(self) -> frozenset[str]:
        """The runs whose trainer does not run, and that have not finished."""
        runs = self.runs.items()
        return frozenset(
            name for name, run in runs if run.trainer_processes == 0 and not run.finished
        )

    @property
    def last_steps(self) -> Mapping[str, float]:
        """When each run that goes on has made its last step (Unix seconds)."""
        return {
            name: run.last_step_at
            for name, run in self.runs.items()
            if run.last_step_at is not None and not run.finished
        }

    def saves_unknown_of(self, run: str) -> str:
        """Returns why it is unknown whether a checkpoint of `run` is being written, or ""."""
        return self.saves_unknown or self.runs.get(run, RunState()).saves_unknown

    def servers_of(self, key: WorkerKey) -> tuple[ServerState, ...]:
        """Returns the inference servers that a worker runs."""
        return tuple(one for one in self.servers.get(key.run, ()) if one.worker == key.worker)
