"""Whether the disks let a run start: room, a folder to write into, and speed.

Room is judged as the shipped rules do.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainwarden_exporter.disk.view import DiskView
from trainwarden_exporter.findings import Finding, Subject, Verdict, verdict
from trainwarden_exporter.wording import size, span

_FEW_CHECKPOINTS = 3
_NO_ROOM = 0.1
_FEW_FILES, _NO_FILES = 0.05, 0.01

Judgement = tuple[Verdict, str]


def check_space(subject: Subject) -> Finding | None:
    """Refuses where not one checkpoint fits, or next to nothing; warns where few do."""
    return _finding(
        "disk space",
        [(disk, _judge_space(disk)) for disk in subject.disks],
        {"ok": "there is room", "warn": "there is little room", "refuse": "there is no room"},
        "make room, or have the framework keep fewer checkpoints",
    )


def check_inodes(subject: Subject) -> Finding | None:
    """Refuses where hardly any more files can be made; warns where few can."""
    return _finding(
        "disk files",
        [(disk, _judge_inodes(disk)) for disk in subject.disks],
        {
            "ok": "many more can be made",
            "warn": "few more can be made",
            "refuse": "hardly any more can be made",
        },
        "find the folder with the many small files, and empty it",
    )


def check_writable(subject: Subject) -> Finding | None:
    """Refuses where no file can be made in the folder of a run, or on a disk that is watched."""
    return _finding(
        "folders",
        [(disk, _judge_writing(disk)) for disk in subject.disks],
        {"ok": "they can be written to", "refuse": "one cannot be written to"},
        "give it to the account of the run, and run this check as that account; a disk that is"
        " read-only, when nobody meant it to be, has failed: the kernel's log says how",
    )


def check_speed(subject: Subject) -> Finding | None:
    """Warns of a disk that writes slower than it should."""
    return _finding(
        "write speed",
        [(disk, _judge_speed(disk)) for disk in subject.disks],
        {"ok": "fast enough", "warn": "slow: saves and weight updates may run into time limits"},
        "let the run write to a faster disk, such as a local one",
    )


def _judge_space(disk: DiskView) -> Judgement | None:
    if disk.space is None:
        return "refuse", disk.trouble
    free, floor, checkpoint = disk.space.free, disk.floor, disk.checkpoint
    if free is None:
        return None
    if checkpoint:
        fit = free / checkpoint
        said = f"{size(free)} free, room for {fit:.1f} checkpoints of {size(checkpoint)}"
        return "refuse" if fit < 1 else "warn" if fit < _FEW_CHECKPOINTS else "ok", said
    said = f"{size(free)} free"
    if floor is None or free >= floor:
        return "ok", said
    said += f", {size(floor)} should be"
    return "refuse" if free < _NO_ROOM * floor else "warn", said


def _judge_inodes(disk: DiskView) -> Judgement | None:
    space = disk.space
    if space is None or space.inodes is None or space.free_inodes is None:
        return None
    share = space.free_inodes / space.inodes
    said = f"{space.free_inodes} more, {share:.0%} of all"
    return "refuse" if share < _NO_FILES else "warn" if share < _FEW_FILES else "ok", said


def _judge_writing(disk: DiskView) -> Judgement | None:
    if disk.space is None:
        return None
    return ("refuse", disk.unwritable) if disk.unwritable else ("ok", "writable")


def _judge_speed(disk: DiskView) -> Judgement | None:
    if disk.stuck:
        return "warn", "a file of 64 MiB has not come to its end in time"
    if disk.measurement is None:
        return None
    speed, latency = disk.measurement.bytes_per_second, disk.measurement.latency
    said = f"{size(speed)}/s, {span(latency)} to a new file"
    if speed >= disk.speed_floor:
        return "ok", said
    return "warn", f"{said}; {size(disk.speed_floor)}/s should be"


def _finding(
    name: str,
    judged: Iterable[tuple[DiskView, Judgement | None]],
    seen: dict[Verdict, str],
    advice: str,
) -> Finding | None:
    """All disks of which there is something to say, in one finding: the worst of them."""
    said = [(disk, *judgement) for disk, judgement in judged if judgement is not None]
    if not said:
        return None
    findings = [Finding(name, given, f"{disk.path}: {text}") for disk, given, text in said]
    worst = verdict(findings)
    if worst == "ok" and len(findings) == 1:
        return findings[0]
    details = tuple(finding.seen for finding in findings)
    return Finding(name, worst, seen[worst], details, "" if worst == "ok" else advice)
