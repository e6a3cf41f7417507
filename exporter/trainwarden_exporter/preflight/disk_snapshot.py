"""One-shot disk inspection for preflight."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainwarden_exporter.checkpoints.scanner import CheckpointScanner
from trainwarden_exporter.disk.config import DiskConfig, ProbeConfig
from trainwarden_exporter.disk.usage import DiskUsage, free_floor, read_disk_usage
from trainwarden_exporter.disk.write_probe import Measurement, has_free_space, measure
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import checkpoint_specs
from trainwarden_exporter.runtime.blocking_thread import run_with_timeout
from trainwarden_exporter.runtime.formatting import format_duration

TIMEOUT_SECONDS = 10.0
"""Timeout of the inspection of a disk, and again of the write probe."""
PROBE_BYTES = 64 << 20
PROBE_SECONDS = 3.0
"""Maximum duration of the write probe; the amount written until then gives the speed."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DiskSnapshot:
    """A disk at one moment. Sizes in bytes; None where unknown."""

    path: Path
    problem: str = ""
    """Why the other fields are unknown; empty if they are known."""
    disk_usage: DiskUsage | None = None
    floor: int | None = None
    """Minimum free space."""
    checkpoint: int | None = None
    """Size of the newest complete checkpoint of the runs on this disk; the largest of several."""
    missing: bool = False
    """Whether the folder of a run does not exist."""
    unwritable: str = ""
    """Why the folder, or its nearest existing parent, is not writable; empty if it is."""
    measurement: Measurement | None = None
    """None without a measurement: too little free space, or not writable."""
    stuck: bool = False
    """Whether the write probe timed out."""
    speed_floor: int = ProbeConfig().speed_floor
    """Minimum speed in bytes per second."""


def take_disk_snapshots(
    disks: Sequence[DiskConfig],
    runs: Sequence[RunConfig],
    *,
    timeout: float = TIMEOUT_SECONDS,
    probe: bool = True,
) -> tuple[DiskSnapshot, ...]:
    """Inspects the configured disks and those of the runs once.

    With `probe`, writes a file of at most 64 MiB to each and removes it.
    """
    configured = {disk.path: disk for disk in disks}
    paths = [*configured, *(run.path for run in runs if run.path is not None)]
    return tuple(
        _take_snapshot(
            path,
            configured.get(path),
            [run for run in runs if run.path == path],
            timeout,
            measures=probe,
        )
        for path in dict.fromkeys(paths)
    )


def write_error(folder: Path) -> str:
    """Returns why `folder` is not writable; empty if a file could be created and removed."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def nearest_existing(path: Path) -> Path:
    """Returns `path` or its nearest existing parent. Raises OSError."""
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def _take_snapshot(
    path: Path,
    disk: DiskConfig | None,
    runs: Sequence[RunConfig],
    timeout: float,
    *,
    measures: bool,
) -> DiskSnapshot:
    disk_usage = _with_timeout(timeout, lambda: read_disk_usage(path, or_above=disk is None))
    unwritable = _with_timeout(timeout, lambda: write_error(nearest_existing(path)))
    if not isinstance(disk_usage, DiskUsage):
        return DiskSnapshot(path, problem=disk_usage)
    probe = (disk and disk.probe) or ProbeConfig()
    measured: Measurement | str | None = None
    if measures and not unwritable:
        measured = _with_timeout(timeout, lambda: _measure(nearest_existing(path)))
    return DiskSnapshot(
        path,
        disk_usage=disk_usage,
        missing=nearest_existing(path) != path,
        floor=free_floor(disk, disk_usage),
        checkpoint=_newest_checkpoint_bytes(runs, timeout),
        unwritable=unwritable,
        measurement=measured if isinstance(measured, Measurement) else None,
        stuck=isinstance(measured, str),
        speed_floor=probe.speed_floor,
    )


def _measure(folder: Path) -> Measurement | None:
    if not has_free_space(folder, PROBE_BYTES):
        return None
    return measure(folder, PROBE_BYTES, limit=PROBE_SECONDS)


def _newest_checkpoint_bytes(runs: Sequence[RunConfig], timeout: float) -> int | None:
    def largest() -> int | None:
        scanners = (CheckpointScanner(spec) for run in runs for spec in checkpoint_specs(run))
        sizes = [
            newest.size for scanner in scanners if (newest := scanner().result.newest) is not None
        ]
        return max(sizes, default=None)

    found = _with_timeout(timeout, largest)
    return None if isinstance(found, str) else found


def _with_timeout(timeout: float, ask: Callable[[], T]) -> T | str:
    """Returns the result of `ask`, or why there is none."""
    try:
        return run_with_timeout(timeout, ask)
    except TimeoutError:
        return f"no answer within {format_duration(timeout)}"
    except OSError as error:
        return error.strerror or str(error)
