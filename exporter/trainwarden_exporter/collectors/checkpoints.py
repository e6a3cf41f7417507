"""The checkpoints of each run: the newest that is whole, what is being saved, what still fits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Self

from trainwarden_exporter.checkpoints.eye import INTERVAL, CheckpointEye, CheckpointsSeen
from trainwarden_exporter.checkpoints.specs import CheckpointSpec, checkpoint_specs
from trainwarden_exporter.collector import Collector, Family, Metric
from trainwarden_exporter.disk.mounts import Mount
from trainwarden_exporter.entries.disk import Disk
from trainwarden_exporter.entries.place import Finder
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.runs import RunConfig
from trainwarden_exporter.watching import Watch, Watches
from trainwarden_exporter.wording import printable

SAVING = 60.0
"""Seconds after the last write for which a checkpoint counts as being saved."""

Sample = tuple[Metric, tuple[str, ...], float | None]


def _metric(name: str, text: str, *more: str) -> Metric:
    return Metric(f"trainwarden_{name}", "gauge", text, ("run", "checkpoint", *more))


SEEN = _metric(
    "checkpoint_seen_timestamp_seconds",
    "When the folders were last looked at; while they never could be, since when that is tried.",
)
FOLDERS = _metric("checkpoint_folders", "Folders that were found where checkpoints should lie.")
STEP = _metric("checkpoint_step", "Step of the newest complete checkpoint, counted from one.")
TIME = _metric("checkpoint_timestamp_seconds", "When the newest complete checkpoint became so.")
SIZE = _metric("checkpoint_size_bytes", "Size of the newest complete checkpoint.")
SAVE = _metric(
    "checkpoint_save_seconds",
    "From the first to the last write of the newest complete checkpoint; absent for one file.",
)
COMPLETE = _metric("checkpoint_complete", "Checkpoints on disk that are complete.")
INCOMPLETE = _metric("checkpoint_incomplete", "Checkpoints on disk that are not complete.")
UNEXAMINED = _metric(
    "checkpoint_unexamined", "Checkpoints on disk that were not looked at yet, or may not be."
)
BEGUN_STEP = _metric(
    "checkpoint_incomplete_step", "Step of the incomplete one newer than the newest complete one."
)
BEGUN_TIME = _metric("checkpoint_incomplete_timestamp_seconds", "When that one was begun.")
IS_SAVING = _metric("checkpoint_saving", "Whether that one is there, and was written to just now.")
USUAL = _metric(
    "checkpoint_interval_seconds",
    "How often one is to be saved, as configured, else the median of those seen.",
)
CONFIGURED = _metric("checkpoint_interval_configured", "Whether that was configured.")
RECOVERY_STEP = _metric("checkpoint_recovery_step", "Step that the recovery record tells.")
RECOVERY_MATCHES = _metric(
    "checkpoint_recovery_matches",
    "Whether the recovery record is whole and not older than the newest complete checkpoint.",
)
LEFT = _metric(
    "disk_checkpoints_left", "Checkpoints of that size that the disk has room for.", "path"
)


class CheckpointsCollector(Collector):
    """Shows what one watch for each kind of checkpoint has seen last; it never asks a disk."""

    name = "checkpoints"
    metrics = (
        SEEN,
        FOLDERS,
        STEP,
        TIME,
        SIZE,
        SAVE,
        COMPLETE,
        INCOMPLETE,
        UNEXAMINED,
        BEGUN_STEP,
        BEGUN_TIME,
        IS_SAVING,
        USUAL,
        CONFIGURED,
        RECOVERY_STEP,
        RECOVERY_MATCHES,
        LEFT,
    )

    def __init__(
        self,
        runs: Sequence[RunConfig],
        *,
        disk_label: Callable[[Mount], str] = lambda mount: mount.point,
        disk: Disk | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`disk_label` is how the disk collector calls the disk that is mounted so."""
        self._disk_label = disk_label
        self._now = now
        specs = [spec for run in runs for spec in checkpoint_specs(run)]
        finders = {spec.place: Finder(spec.place) for spec in specs}
        self._watches = Watches(
            {spec: _watch(spec, finders[spec.place], disk, now) for spec in specs}
        )

    def adopt(self, predecessor: Self) -> None:
        """Go on with the watches of `predecessor`, and with what they know."""
        self._watches.adopt(predecessor._watches)

    def newest(self) -> Iterator[tuple[str, str, int, float]]:
        """Run, kind, step and time of the newest complete checkpoint of each kind that has one.

        Asks no disk and waits for nothing; for any thread.
        """
        for spec, seen in self._watches.last():
            newest = seen.value.reading.newest
            if newest is not None and (step := newest.step(spec.layout.step_offset)) is not None:
                yield (*spec.labels, step, newest.completed)

    def saving(self) -> Iterator[tuple[str, float | None]]:
        """The run of each kind that was looked at, and since when one of it is being saved.

        None where none is. As `newest`.
        """
        for spec, seen in self._watches.last():
            begun = seen.value.begun
            saves = begun is not None and self._now() - begun[0].changed < SAVING
            yield spec.run, begun[1] if begun is not None and saves else None

    def collect(self) -> Iterable[Family]:
        if not len(self._watches):
            raise NoData("no checkpoints are configured")
        families = {metric: metric.family() for metric in self.metrics}
        for metric, labels, value in self._samples():
            if value is not None:
                families[metric].add_metric(labels, value)
        return families.values()

    def _samples(self) -> Iterator[Sample]:
        now = self._now()
        for spec, watch in self._watches:
            seen = watch.seen()
            yield SEEN, spec.labels, watch.known
            if seen is None:
                continue
            for metric, value in _values(spec, seen.value, now).items():
                yield metric, spec.labels, value
            yield from self._left(spec, seen.value)

    def _left(self, spec: CheckpointSpec, seen: CheckpointsSeen) -> Iterator[Sample]:
        newest, space = seen.reading.newest, seen.space
        if newest is None or not newest.size or space is None or space.free is None:
            return
        mount = space.mount
        path = str(spec.place.path) if mount is None else self._disk_label(mount)
        yield LEFT, (*spec.labels, printable(path)), space.free / newest.size


def _values(
    spec: CheckpointSpec, found: CheckpointsSeen, now: float
) -> Mapping[Metric, float | None]:
    """All that is known of one kind, but for its disk."""
    reading = found.reading
    values: dict[Metric, float | None] = {
        FOLDERS: found.folders,
        USUAL: spec.interval or found.interval,
    }
    if values[USUAL] is not None:
        values[CONFIGURED] = spec.interval is not None
    newest, offset = reading.newest, spec.layout.step_offset
    if newest is not None:
        values |= {
            STEP: newest.step(offset),
            TIME: newest.completed,
            SIZE: newest.size,
            SAVE: found.save_seconds,
        }
    if found.folders:
        begun = found.begun
        values |= {
            COMPLETE: reading.complete_count,
            INCOMPLETE: reading.incomplete_count,
            UNEXAMINED: reading.unexamined_count,
            IS_SAVING: begun is not None and now - begun[0].changed < SAVING,
        }
        if begun is not None:
            values |= {BEGUN_STEP: begun[0].step(offset), BEGUN_TIME: begun[1]}
    if (recovery := found.recovery) is not None:
        step = None if newest is None else newest.step(offset)
        values |= {RECOVERY_STEP: recovery.step, RECOVERY_MATCHES: recovery.matches(step)}
    return values


def _watch(
    spec: CheckpointSpec, finder: Finder, disk: Disk | None, now: Callable[[], float]
) -> Watch[CheckpointsSeen]:
    name = f"checkpoints {'/'.join(spec.labels)}"
    eye = CheckpointEye(spec, finder=finder, disk=disk, now=now)
    return Watch(name, eye, interval=INTERVAL, now=now)
