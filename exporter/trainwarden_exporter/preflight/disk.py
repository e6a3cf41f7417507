"""Disk checks before a run: free space, write access and speed.

Uses the same thresholds as the shipped rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainwarden_exporter.preflight.disk_snapshot import DiskSnapshot
from trainwarden_exporter.preflight.report import (
    CheckResult,
    Finding,
    PreflightContext,
    worst_result,
)
from trainwarden_exporter.runtime.formatting import format_duration, format_room, format_size

_FEW_CHECKPOINTS = 3
_NO_ROOM = 0.1
_FEW_FILES, _NO_FILES = 0.05, 0.01

ResultWithText = tuple[CheckResult, str]


def check_space(context: PreflightContext) -> Finding | None:
    """Refuses if not even one checkpoint fits or hardly anything is free; warns if few fit."""
    return _finding(
        "disk space",
        context.disks,
        _judge_space,
        {"ok": "enough free space", "warn": "little free space", "refuse": "no free space"},
        "free space, or configure the framework to keep fewer checkpoints",
    )


def check_inodes(context: PreflightContext) -> Finding | None:
    """Refuses if hardly any inodes are free; warns if few are."""
    return _finding(
        "disk files",
        context.disks,
        _judge_inodes,
        {"ok": "enough free inodes", "warn": "few free inodes", "refuse": "hardly any free inodes"},
        "find the folder with many small files and empty it",
    )


def check_writable(context: PreflightContext) -> Finding | None:
    """Refuses if the folder of a run or a configured disk does not exist or is not writable."""
    return _finding(
        "folders",
        context.disks,
        _judge_writing,
        {"ok": "all folders are writable", "refuse": "a folder is missing or not writable"},
        "correct a mistyped path, or create the folder before the first start; make the run's "
        "account the owner, and run this check as that account; a disk that "
        "became read-only without a change of configuration has failed: see the kernel log",
    )


def check_speed(context: PreflightContext) -> Finding | None:
    """Warns about a disk that is slower than its configured minimum."""
    return _finding(
        "write speed",
        context.disks,
        _judge_speed,
        {"ok": "fast enough", "warn": "slow: saves and weight updates may exceed time limits"},
        "let the run write to a faster disk, for example a local one",
    )


def _judge_space(disk: DiskSnapshot) -> ResultWithText | None:
    if disk.disk_usage is None:
        return "refuse", disk.problem
    free, floor, checkpoint = disk.disk_usage.free, disk.floor, disk.checkpoint
    if free is None:
        return None
    if checkpoint:
        fit = free / checkpoint
        size = format_size(checkpoint)
        room = format_room(fit, "checkpoint")
        summary = f"{format_size(free)} free, room for {room} of {size}"
        return "refuse" if fit < 1 else "warn" if fit < _FEW_CHECKPOINTS else "ok", summary
    summary = f"{format_size(free)} free"
    if floor is None or free >= floor:
        return "ok", summary
    summary += f", minimum {format_size(floor)}"
    return "refuse" if free < _NO_ROOM * floor else "warn", summary


def _judge_inodes(disk: DiskSnapshot) -> ResultWithText | None:
    disk_usage = disk.disk_usage
    if disk_usage is None or disk_usage.inodes is None or disk_usage.free_inodes is None:
        return None
    share = disk_usage.free_inodes / disk_usage.inodes
    summary = f"{disk_usage.free_inodes:,} free, {share:.0%} of all"
    return "refuse" if share < _NO_FILES else "warn" if share < _FEW_FILES else "ok", summary


def _judge_writing(disk: DiskSnapshot) -> ResultWithText | None:
    if disk.disk_usage is None:
        return None
    if disk.missing:
        return "refuse", "does not exist"
    return ("refuse", disk.unwritable) if disk.unwritable else ("ok", "writable")


def _judge_speed(disk: DiskSnapshot) -> ResultWithText | None:
    if disk.stuck:
        return "warn", "writing a file of 64 MiB timed out"
    if disk.measurement is None:
        return None
    speed, latency = disk.measurement.bytes_per_second, disk.measurement.latency
    summary = f"{format_size(speed)}/s, {format_duration(latency)} for a new file"
    if speed >= disk.speed_floor:
        return "ok", summary
    return "warn", f"{summary}; minimum {format_size(disk.speed_floor)}/s"


def _finding(
    name: str,
    disks: Iterable[DiskSnapshot],
    judge: Callable[[DiskSnapshot], ResultWithText | None],
    observed: dict[CheckResult, str],
    advice: str,
) -> Finding | None:
    """Combines the results of all disks into one finding with the worst result."""
    findings = [
        Finding(name, result[0], f"{disk.path}: {result[1]}")
        for disk in disks
        if (result := judge(disk)) is not None
    ]
    if not findings:
        return None
    worst = worst_result(findings)
    if worst == "ok" and len(findings) == 1:
        return findings[0]
    details = tuple(finding.observed for finding in findings)
    return Finding(name, worst, observed[worst], details, "" if worst == "ok" else advice)
