"""Evaluates what the exporter shows: whether a condition still holds, and what explains it.

All times are Unix seconds. An observation that is too old counts as none.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.config.playbooks import Condition
from trainwarden_remediator.observation.model import (
    ExporterState,
    RunState,
    ServerState,
    WorkerState,
)

STALE_SECONDS = 120.0
"""A background observation of the exporter that is older than this counts as none."""

REPEATED_SECONDS = 60.0
"""Seconds after which a save that began since is no reason to wait: the action itself looks for a
file that is being written right before the signal."""

MIN_SAVE_SECONDS = 5.0
"""The least time that a save is assumed to take."""

INFERENCE = "inference"
"""The role of a server whose completions a run waits for; other roles do not stall it."""

DOWN = frozenset({"refused", "timeout", "status", "engine_dead", "hung"})
"""Reasons why a server is not up that a restart can heal. A server that starts, pauses, sleeps or
loads new weights is at work; for all other reasons the cause is unknown."""

BUSY = "busy"
"""The reason of a server that works and does not answer meanwhile."""

EMERGENCY_BRAKE_STREAK = 10
"""So many emergency brakes of a worker in a row are a pattern."""

EMERGENCY_BRAKE_SECONDS = 300.0
"""A worker whose last emergency brake is older than this is not braking any more."""


def is_down(server: ServerState) -> bool:
    """Whether an inference server is down for a reason that a restart can heal."""
    return not server.up and server.reason in DOWN


def is_overdue(server: ServerState) -> bool:
    """Whether a server works and has not answered for longer than it may."""
    return not server.up and server.reason == BUSY


def is_stalled(run: RunState, now: float, servers: Sequence[ServerState] = ()) -> bool:
    """Whether a run has made no progress for longer than a limit of it; False once it finished.

    After its last step, only if its stacks show that it hangs.

    The restart limit is the lower one where its stacks prove that it hangs in a phase with a limit
    of its own, such as an evaluation. A change of state of one of its `servers` restarts the time:
    a trainer that waited for a server has its whole limit to continue once the server is back.
    """
    if run.finished or run.ends or run.progress_at is None or run.stall_limit is None:
        return False
    changes = (server.since for server in servers if server.since is not None)
    limit = min(run.stall_limit, run.restart_limit or run.stall_limit)
    return now - max(run.progress_at, *changes, 0.0) > limit


def has_moved(run: RunState | None, since: float) -> bool:
    """Whether a run has made progress since `since`, is over, or shows no progress at all."""
    if run is None or run.finished or run.progress_at is None or run.trainer_processes == 0:
        return True
    return run.progress_at > since


def find_root_cause(run: str, exporter: ExporterState, now: float) -> str:
    """Returns why the run makes no progress where a restart of it would not help, or ""."""
    for server in exporter.servers.get(run, ()):
        if server.role != INFERENCE or not is_fresh(server.seen_at, now):
            continue
        if not server.up:
            return f"its inference server {server.name} is not up ({server.reason})"
        if server.reason == BUSY:
            return f"its inference server {server.name} is busy with a request"
        if server.failures > 0:
            return f"its inference server {server.name} did not complete a token"
    return ""


def is_saving(run: RunState, now: float) -> bool:
    """Whether a checkpoint is being written; a run that hangs in its saving phase is not saving."""
    return run.saving or (run.phase == "saving" and not is_stalled(run, now))


def repeats_saves(run: RunState, since: float, now: float) -> bool:
    """Whether saves have followed each other since `since`, so that waiting for one has no end.

    A run that saves more often than its checkpoints take to count as complete always seems to be
    saving; between two saves it is safe to end it. The save of `since` is complete where another
    one has begun, and this one once it has had twice the time of the last complete one.
    """
    began, took = run.saving_since, run.save_seconds
    if began is None or began <= since:
        return False
    return now - since > REPEATED_SECONDS or now - began > 2 * (took or 0.0) + MIN_SAVE_SECONDS


def is_fresh(seen_at: float | None, now: float) -> bool:
    return seen_at is None or now - seen_at <= STALE_SECONDS


def still_holds(condition: Condition, key: WorkerKey, exporter: ExporterState, now: float) -> bool:
    """Whether the exporter still shows the condition, of the worker `key` if it is about one."""
    match condition:
        case Condition.MEMORY_BELOW_FLOOR:
            return exporter.memory_available_bytes < exporter.memory_floor_bytes
        case Condition.GPU_HELD:
            return bool(exporter.gpu_orphans)
        case Condition.INFERENCE_DOWN:
            return any(is_down(server) for server in exporter.servers_of(key))
        case Condition.NO_PROGRESS:
            servers = exporter.servers.get(key.run, ())
            return is_stalled(exporter.runs.get(key.run, RunState()), now, servers)
        case Condition.BRAKING:
            return _is_emergency_braking(key, exporter, now)
        case Condition.ANY:
            return True
        case _:
            worker = exporter.workers.get(key)
            return worker is not None and _worker_condition_holds(condition, worker, now)


def _worker_condition_holds(condition: Condition, worker: WorkerState, now: float) -> bool:
    if condition is Condition.MISSING:
        return worker.missing
    if condition is Condition.OVER_MEMORY_LIMIT:
        limit = worker.memory_limit_bytes
        return limit is not None and worker.memory_bytes > limit
    most, trials = worker.trials_limit, worker.trials
    if most is not None and trials is not None and trials >= most:
        return True
    limit, started = worker.age_limit_seconds, worker.started_at
    return limit is not None and started is not None and now - started > limit


def _is_emergency_braking(key: WorkerKey, exporter: ExporterState, now: float) -> bool:
    """Whether the worker that runs now keeps applying its emergency brake."""
    brake, worker = exporter.emergency_brakes.get(key), exporter.workers.get(key)
    if brake is None or worker is None or brake.streak < EMERGENCY_BRAKE_STREAK:
        return False
    return now - brake.last_at < EMERGENCY_BRAKE_SECONDS and brake.last_at > (
        worker.started_at or 0.0
    )


def missing_observation(
    condition: Condition, key: WorkerKey, exporter: ExporterState, now: float
) -> str:
    """Returns which observation is missing to evaluate the condition, or ""."""
    if condition is Condition.INFERENCE_DOWN:
        servers = exporter.servers_of(key)
        if not servers:
            return "the exporter shows no inference server for it"
        unseen = [server.name for server in servers if not is_fresh(server.seen_at, now)]
        return f"the exporter has not probed {', '.join(unseen)} recently" if unseen else ""
    if condition is Condition.NO_PROGRESS:
        return missing_progress(exporter.runs.get(key.run))
    if condition is Condition.BRAKING and key not in exporter.emergency_brakes:
        return "the exporter shows no emergency brake in its logs"
    return ""


def describe_observed(condition: Condition, key: WorkerKey, exporter: ExporterState) -> str:
    """Describes what the exporter shows in place of the condition, or ""."""
    if condition is not Condition.INFERENCE_DOWN:
        return ""
    return ", ".join(f"{one.name}: {one.reason or 'up'}" for one in exporter.servers_of(key))


def missing_progress(run: RunState | None) -> str:
    """Returns what the exporter does not show of the progress of a run, or ""."""
    if run is None or (run.progress_at is None and not run.finished):
        return "the exporter does not show the run's progress"
    if run.stall_limit is None and not run.finished:
        return "the exporter shows no stall limit for the run"
    return ""
