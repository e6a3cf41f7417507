"""One look at the disks that a run is to write to, for whoever needs it only once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainwarden_exporter.checkpoints.eye import CheckpointEye
from trainwarden_exporter.checkpoints.specs import checkpoint_specs
from trainwarden_exporter.collectors.disk import DiskConfig, ProbeConfig
from trainwarden_exporter.disk.probe import Measurement, has_room, measure
from trainwarden_exporter.disk.space import Space, default_floor, read_space
from trainwarden_exporter.lane import within
from trainwarden_exporter.runs import RunConfig
from trainwarden_exporter.wording import span

PATIENCE = 10.0
"""Seconds that a disk has to answer, and again as many to take a file."""
PROBE_BYTES = 64 << 20
PROBE_SECONDS = 3.0
"""After so long no more is written: what a slow disk has taken until then tells enough."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DiskView:
    """A disk at one moment. Sizes in bytes; None where it is not known."""

    path: Path
    trouble: str = ""
    """Why nothing else is known of it."""
    space: Space | None = None
    floor: int | None = None
    """What should stay free."""
    checkpoint: int | None = None
    """The newest complete one of the runs that lie here; of several, the largest."""
    unwritable: str = ""
    """Why no file can be made in the folder, or in the nearest that is there."""
    measurement: Measurement | None = None
    """None where it was not measured: too little is free, or nothing can be written."""
    stuck: bool = False
    """Whether the file that was to be measured has not come to its end in time."""
    speed_floor: int = ProbeConfig().speed_floor
    """Bytes a second under which it is slow."""


def look_at_disks(
    disks: Sequence[DiskConfig], runs: Sequence[RunConfig], *, patience: float = PATIENCE
) -> tuple[DiskView, ...]:
    """Look once at the disks that are configured, and at those the runs lie on.

    Writes a file of at most 64 MiB to each, and removes it.
    """
    configured = {disk.path: disk for disk in disks}
    paths = [*configured, *(run.path for run in runs if run.path is not None)]
    return tuple(
        _look(path, configured.get(path), [run for run in runs if run.path == path], patience)
        for path in dict.fromkeys(paths)
    )


def try_to_write(folder: Path) -> str:
    """Why no file can be made in `folder`; empty where one was made, and removed again."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def nearest(path: Path) -> Path:
    """`path`, or the nearest folder above it that is there. Raises OSError."""
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def _look(
    path: Path, disk: DiskConfig | None, runs: Sequence[RunConfig], patience: float
) -> DiskView:
    space = _asked(patience, lambda: read_space(path, or_above=disk is None))
    unwritable = _asked(patience, lambda: try_to_write(nearest(path)))
    if not isinstance(space, Space):
        return DiskView(path, trouble=space)
    floor = None if disk is None else disk.free_floor
    if floor is None and space.size is not None:
        floor = default_floor(space.size)
    probe = (disk and disk.probe) or ProbeConfig()
    measured: Measurement | str | None = None
    if not unwritable:
        measured = _asked(patience, lambda: _measured(nearest(path)))
    return DiskView(
        path,
        space=space,
        floor=floor,
        checkpoint=_asked_checkpoint(runs, patience),
        unwritable=unwritable,
        measurement=measured if isinstance(measured, Measurement) else None,
        stuck=isinstance(measured, str),
        speed_floor=probe.speed_floor,
    )


def _measured(folder: Path) -> Measurement | None:
    if not has_room(folder, PROBE_BYTES):
        return None
    return measure(folder, PROBE_BYTES, limit=PROBE_SECONDS)


def _asked_checkpoint(runs: Sequence[RunConfig], patience: float) -> int | None:
    def largest() -> int | None:
        eyes = (CheckpointEye(spec) for run in runs for spec in checkpoint_specs(run))
        sizes = [newest.size for eye in eyes if (newest := eye().reading.newest) is not None]
        return max(sizes, default=None)

    found = _asked(patience, largest)
    return None if isinstance(found, str) else found


def _asked(patience: float, ask: Callable[[], T]) -> T | str:
    """What `ask` returns, or why it does not."""
    try:
        return within(patience, ask)
    except TimeoutError:
        return f"it has not answered within {span(patience)}"
    except OSError as error:
        return error.strerror or str(error)
