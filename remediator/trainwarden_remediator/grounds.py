"""Judges what the exporter shows: whether a trouble lasts, and what speaks against a restart.

All times are Unix seconds. What was last seen too long ago counts as not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.decision import PastAction
from trainwarden_remediator.playbooks import Trouble
from trainwarden_remediator.sight import DiskSight, RunSight, ServerSight, Sight, WorkerSight

STALE_SECONDS = 120.0
"""What the exporter looks at in the background and has not seen for so long, it does not see."""

INFERENCE = "inference"
"""The role of a server whose completions a run waits for; others may be as they like."""

DOWN = frozenset({"refused", "timeout", "status", "engine_dead", "hung"})
"""Reasons for a server not to be up that a restart can mend. One that starts, pauses, sleeps or
takes new weights is at work; of any other the cause is not known."""

BRAKES_IN_A_ROW = 10
"""So often in a row a brake is no accident any more."""

BRAKE_SECONDS = 300.0
"""A brake that was last put on longer ago is put on no more."""

SMALL_DISK_SHARE = 0.01
FEWEST_INODES = 1000.0


def is_down(server: ServerSight) -> bool:
    """Whether an inference server is in trouble."""
    return not server.up and server.reason in DOWN


def is_stalled(run: RunSight, now: float, servers: Sequence[ServerSight] = ()) -> bool:
    """Whether a run has been without progress for longer than it may; never one that has ended.

    The time begins anew when one of its `servers` changes its state: a trainer that has waited for
    a server has its whole limit to go on once that is back.
    """
    if run.finished or run.progress_at is None or run.stall_limit is None:
        return False
    changes = (server.since for server in servers if server.since is not None)
    return now - max(run.progress_at, *changes, 0.0) > run.stall_limit


def explanation(run: str, sight: Sight, now: float) -> str:
    """What else explains that a run makes no progress, and a restart of it would not mend."""
    for server in sight.servers.get(run, ()):
        if server.role != INFERENCE or not is_seen(server.seen_at, now):
            continue
        if not server.up:
            return f"its inference server {server.name} is not up ({server.reason})"
        if server.failures > 0:
            return f"its inference server {server.name} was asked for a token in vain"
    return ""


def is_saving(run: RunSight, now: float) -> bool:
    """Whether a checkpoint is being written, and not merely meant to be by a run that hangs."""
    return run.saving or (run.phase == "saving" and not is_stalled(run, now))


def is_seen(seen_at: float | None, now: float) -> bool:
    return seen_at is None or now - seen_at <= STALE_SECONDS


def persists(trouble: Trouble, key: WorkerKey, sight: Sight, now: float) -> bool:
    """Whether the exporter still sees the trouble, of the worker `key` where it is about one."""
    match trouble:
        case Trouble.MEMORY_BELOW_FLOOR:
            return sight.memory_available_bytes < sight.memory_floor_bytes
        case Trouble.GPU_HELD:
            return bool(sight.gpu_orphans)
        case Trouble.INFERENCE_DOWN:
            return any(is_down(server) for server in sight.servers_of(key))
        case Trouble.NO_PROGRESS:
            servers = sight.servers.get(key.run, ())
            return is_stalled(sight.runs.get(key.run, RunSight()), now, servers)
        case Trouble.BRAKING:
            return _is_braking(key, sight, now)
        case Trouble.ANY:
            return True
        case _:
            worker = sight.workers.get(key)
            return worker is not None and _is_ill(trouble, worker, now)


def _is_ill(trouble: Trouble, worker: WorkerSight, now: float) -> bool:
    if trouble is Trouble.MISSING:
        return worker.processes < worker.expected and not worker.finished
    if trouble is Trouble.OVER_MEMORY_LIMIT:
        limit = worker.memory_limit_bytes
        return limit is not None and worker.resident_bytes > limit
    most, trials = worker.trials_limit, worker.trials
    if most is not None and trials is not None and trials >= most:
        return True
    limit, started = worker.age_limit_seconds, worker.started_at
    return limit is not None and started is not None and now - started > limit


def _is_braking(key: WorkerKey, sight: Sight, now: float) -> bool:
    """Whether a brake goes on being put on in the worker that runs now."""
    brake, worker = sight.brakes.get(key), sight.workers.get(key)
    if brake is None or worker is None or brake.streak < BRAKES_IN_A_ROW:
        return False
    return now - brake.last_at < BRAKE_SECONDS and brake.last_at > (worker.started_at or 0.0)


def not_shown(trouble: Trouble, key: WorkerKey, sight: Sight, now: float) -> str:
    """What would have to be seen to tell whether the trouble lasts, and is not; or nothing."""
    if trouble is Trouble.INFERENCE_DOWN:
        servers = sight.servers_of(key)
        if not servers:
            return "the exporter shows no inference server of it"
        unseen = [server.name for server in servers if not is_seen(server.seen_at, now)]
        return f"the exporter has not seen {', '.join(unseen)} for long" if unseen else ""
    if trouble is Trouble.NO_PROGRESS:
        return progress_not_shown(sight.runs.get(key.run))
    if trouble is Trouble.BRAKING and key not in sight.brakes:
        return "the exporter shows no brake in its logs"
    return ""


def what_is_seen(trouble: Trouble, key: WorkerKey, sight: Sight) -> str:
    """What is seen in place of the trouble, where that is worth telling."""
    if trouble is not Trouble.INFERENCE_DOWN:
        return ""
    return ", ".join(f"{one.name}: {one.reason or 'up'}" for one in sight.servers_of(key))


def progress_not_shown(run: RunSight | None) -> str:
    """What of the progress of a run is not shown, or nothing."""
    if run is None or (run.progress_at is None and not run.finished):
        return "the exporter does not show the run's progress"
    if run.stall_limit is None and not run.finished:
        return "the exporter does not show how long the run may be without progress"
    return ""


def disk_trouble(sight: Sight, run: str, path: Path | None, reserve: float, now: float) -> str:
    """What is wrong with a disk that a run writes to, or nothing."""
    for disk in _disks_of(sight.disks, run, path):
        if not disk.up or not is_seen(disk.seen_at, now):
            return f"the disk of {disk.path} does not answer"
        if disk.read_only:
            return f"the disk of {disk.path} is read-only"
        if _is_scarce(disk.free, disk.size, reserve):
            return f"the disk of {disk.path} is full"
        if disk.inodes and _is_scarce(disk.free_inodes, disk.inodes, FEWEST_INODES):
            return f"the disk of {disk.path} is out of inodes"
    return ""


def _disks_of(disks: Sequence[DiskSight], run: str, path: Path | None) -> Sequence[DiskSight]:
    """Those that a run writes to: where it keeps checkpoints, and the one its folder lies on.

    Where neither is known, any that no other run is known to write to may be one.
    """
    saves = [disk for disk in disks if run in disk.runs]
    if path is None:
        return saves or [disk for disk in disks if not disk.runs]
    around = [disk for disk in disks if path.is_relative_to(disk.path)]
    nearest = max(around, key=lambda disk: len(disk.path), default=None)
    return [*saves, nearest] if nearest is not None and nearest not in saves else saves


def _is_scarce(free: float | None, size: float | None, enough: float) -> bool:
    return free is not None and free < min(enough, SMALL_DISK_SHARE * (size or float("inf")))


def fruitless(history: Sequence[PastAction], run: RunSight | None) -> int:
    """Actions since which the run has got no further, counted back from the last.

    What was not known then, or is not known now, is no sign of a loop.
    """
    if run is None:
        return 0
    count = 0
    for action in reversed(history):
        marks = ((action.step, run.step), (action.checkpoint, run.checkpoint))
        known = [(then, now) for then, now in marks if then is not None and now is not None]
        if not known or any(now > then for then, now in known):
            break
        count += 1
    return count
