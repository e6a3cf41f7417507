"""Evaluates whether the disks of a run are usable, and whether it ended as one was full. Pure.

All times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trainwarden_exporter.runtime.formatting import format_size, plural
from trainwarden_remediator.model import PastAction
from trainwarden_remediator.observation.model import (
    DiskState,
    ExporterState,
    RunState,
    WorkerState,
)
from trainwarden_remediator.policy.conditions import is_fresh
from trainwarden_remediator.policy.context import PolicyState

MIN_FREE_SHARE = 0.01
MIN_FREE_INODES = 1000.0

ERROR_SECONDS = 60.0
"""How long before the end of a worker the error that no space is left may have ended it."""

UNSEEN_END_SECONDS = 600.0
"""The same, before the decision, where its end was not observed."""

_DISK_FILLING = "TrainingDiskFilling"
"""The alert of a disk without room for a run; it blocks restarts only while it is critical."""


def disk_problem(
    exporter: ExporterState, run: str, path: Path | None, reserve: float, now: float
) -> str:
    """Returns what is wrong with a disk that the run writes to, or ""."""
    for disk in _disks_of(exporter.disks, run, path):
        if not disk.up or not is_fresh(disk.seen_at, now):
            return f"the disk of {disk.path} does not answer"
        if disk.read_only:
            return f"the disk of {disk.path} is read-only"
        if scarce := _shortage(disk, run, exporter.runs.get(run), reserve):
            return scarce
    return ""


def full_at_its_end(
    exporter: ExporterState,
    run: str,
    path: Path | None,
    now: float,
    *,
    worker: WorkerState | None,
    history: Sequence[PastAction],
    without_room_at: float,
) -> str:
    """Returns why a worker that ended without space would end so again, or "".

    `history`: the actions on it. What it wrote last was perhaps removed since, so that some space
    is free again. `without_room_at`: when a watched disk of the run was last seen without room.
    """
    state = exporter.runs.get(run, RunState())
    if worker is None or worker.processes > 0 or state.disk_full_at is None:
        return ""
    ended = worker.last_exit_at
    since = now - UNSEEN_END_SECONDS if ended is None else ended - ERROR_SECONDS
    if state.disk_full_at < since:
        return ""
    for disk in _disks_of(exporter.disks, run, path):
        if _is_below_floor(disk):
            has = f"the disk of {disk.path} has {_describe_free(disk, state)}"
            return f"the run ended as no space was left, and {has}"
    # That disk has room again, so it is what was full.
    if without_room_at >= state.disk_full_at - ERROR_SECONDS:
        return ""
    if any(one.result == "done" and one.acted_at < state.disk_full_at for one in history):
        return (
            "no space was left after its restart, too, though the watched disks have room, and were"
            " not seen without: a quota, or a disk that is not watched"
        )
    return ""


def seen_without_room(state: PolicyState, now: float) -> Mapping[str, float]:
    """Returns the runs with a watched disk that has no room, as the exporter or an alert shows.

    With each, when that was seen.
    """
    exporter = state.snapshot.exporter if state.snapshot is not None else None
    seen = {}
    for run in {target.run for target in state.config.targets}:
        reported = state.blocking_incidents(run, "")
        times = [one.last_received_at for one in reported if one.alert == _DISK_FILLING]
        if exporter is not None:
            disks = _disks_of(exporter.disks, run, state.setup.run_path(run))
            reserve = state.config.disk_reserve
            lacks = (_is_below_floor(disk) or _shortage(disk, run, None, reserve) for disk in disks)
            times += [now] * any(lacks)
        if times:
            seen[run] = max(times)
    return seen


def _shortage(disk: DiskState, run: str, state: RunState | None, reserve: float) -> str:
    """Returns what a disk has too little of for its run, or ""."""
    if _is_scarce(disk.free, disk.size, reserve):
        return f"the disk of {disk.path} is full"
    if disk.inodes and _is_scarce(disk.free_inodes, disk.inodes, MIN_FREE_INODES):
        return f"the disk of {disk.path} is out of inodes"
    if disk.checkpoints_left.get(run, 1.0) < 1:
        room = f"the disk of {disk.path} has no room for another checkpoint"
        return ": ".join(filter(None, (room, _describe_free(disk, state))))
    return ""


def _is_below_floor(disk: DiskState) -> bool:
    return disk.free is not None and disk.free < (disk.free_floor or 0.0)


def _describe_free(disk: DiskState, run: RunState | None) -> str:
    """Returns how much of a disk is free, and what of the run is there."""
    size = "" if disk.size is None else f" of {format_size(disk.size)}"
    parts = [] if disk.free is None else [f"{format_size(disk.free)} free{size}"]
    if run is not None and run.checkpoints and run.checkpoint_bytes is not None:
        count = plural(round(run.checkpoints), "checkpoint")
        parts.append(f"the run keeps {count} of {format_size(run.checkpoint_bytes)} there")
    return "; ".join(parts)


def _disks_of(disks: Sequence[DiskState], run: str, path: Path | None) -> Sequence[DiskState]:
    """The disks that a run writes to: those of its checkpoints, and the one of its folder.

    Where neither is known, every disk that no other run is known to write to.
    """
    saves = [disk for disk in disks if run in disk.runs]
    if path is None:
        return saves or [disk for disk in disks if not disk.runs]
    around = [disk for disk in disks if path.is_relative_to(disk.path)]
    nearest = max(around, key=lambda disk: len(disk.path), default=None)
    return [*saves, nearest] if nearest is not None and nearest not in saves else saves


def _is_scarce(free: float | None, size: float | None, enough: float) -> bool:
    return free is not None and free < min(enough, MIN_FREE_SHARE * (size or float("inf")))
