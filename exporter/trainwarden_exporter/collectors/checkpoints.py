"""Collects the checkpoints of each run: newest complete, in progress, and free space for more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from trainwarden_exporter.checkpoints.pollers import make_pollers
from trainwarden_exporter.checkpoints.proofs import ProofSnapshot
from trainwarden_exporter.checkpoints.scanner import CheckpointSnapshot
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.disk.mounts import Mount
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import checkpoint_specs
from trainwarden_exporter.runtime.formatting import printable
from trainwarden_exporter.scrape.collector import Collector, Family, Metric, MetricTable, Sample
from trainwarden_exporter.step_dirs.filesystem import FileSystem

_table = MetricTable("trainwarden_", "run", "checkpoint")
_gauge = _table.gauge

MAX_PROBLEM_LENGTH = 200

LAST_SCAN = _gauge(
    "checkpoint_seen_timestamp_seconds",
    "Last successful scan of the folders; until the first, the time of the first attempt.",
)
FOLDERS = _gauge("checkpoint_folders", "Existing checkpoint folders.")
STEP = _gauge("checkpoint_step", "Step of the newest complete checkpoint, counted from one.")
TIME = _gauge(
    "checkpoint_timestamp_seconds", "Time at which the newest complete checkpoint was completed."
)
SIZE = _gauge("checkpoint_size_bytes", "Size of the newest complete checkpoint.")
SAVE_DURATION = _gauge(
    "checkpoint_save_seconds",
    "Time from the first to the last write of the newest complete checkpoint; absent for one file.",
)
COMPLETE = _gauge("checkpoint_complete", "Complete checkpoints on disk.")
INCOMPLETE = _gauge("checkpoint_incomplete", "Incomplete checkpoints on disk.")
UNEXAMINED = _gauge(
    "checkpoint_unexamined", "Checkpoints on disk that are not examined yet or cannot be read."
)
OTHERS_INFO = _gauge(
    "checkpoint_others_info",
    "1 where the folders hold no checkpoint, and something; the label has the first names.",
    "names",
)
MISSING_INFO = _gauge(
    "checkpoint_missing_folder_info",
    "1 while the folder of the checkpoints that a run has named does not exist; the label has its "
    "path.",
    "path",
)
INCOMPLETE_STEP = _gauge(
    "checkpoint_incomplete_step",
    "Step of the incomplete checkpoint that is newer than the newest complete one.",
)
INCOMPLETE_INFO = _gauge(
    "checkpoint_incomplete_info",
    "1 for that incomplete checkpoint; the label has its name.",
    "name",
)
INCOMPLETE_TIME = _gauge(
    "checkpoint_incomplete_timestamp_seconds",
    "Time of the first write to that incomplete checkpoint.",
)
IS_SAVING = _gauge(
    "checkpoint_saving",
    "Whether that incomplete checkpoint exists and was written to recently; no longer once it has "
    "been left alone for 5 s with all files, and the size, of the complete one before.",
)
IS_SETTLING = _gauge(
    "checkpoint_settling",
    "Whether it was written to so recently that nothing can show that its save is over: that is "
    "known once it has not changed for 30 s.",
)
EXPECTED_INTERVAL = _gauge(
    "checkpoint_interval_seconds",
    "Expected time between checkpoints: as configured, else the observed median; at least the time "
    "without changes after which a checkpoint counts as complete.",
)
RECOVERY_STEP = _gauge("checkpoint_recovery_step", "Step named by the recovery record.")
RECOVERY_MISSING = _gauge(
    "checkpoint_recovery_missing_file",
    "1 if a file of the recovery record is missing; the label names it.",
    "file",
)
RECOVERY_MATCHES = _gauge(
    "checkpoint_recovery_matches",
    "Whether the recovery record is valid and not older than the newest complete checkpoint.",
)
CHECKPOINTS_LEFT = _gauge(
    "disk_checkpoints_left", "Checkpoints of the newest one's size that fit on the disk.", "path"
)
PROVED_STEP = _gauge(
    "checkpoint_proved_step",
    "Step of the newest proved checkpoint: complete, and its content is sound.",
)
PROVED_TIME = _gauge(
    "checkpoint_proved_timestamp_seconds",
    "Time at which the newest proved checkpoint was completed.",
)
UNPROVED_STEP = _gauge(
    "checkpoint_unproved_step",
    "Step of the oldest complete checkpoint, after the newest proved one, whose content is not read"
    " yet, or does not show whether it was cut short.",
)
PROVED_INFO = _gauge(
    "checkpoint_proved_info", "1 for the newest proved checkpoint; the label has its path.", "path"
)
PROVED = _gauge("checkpoint_proved", "Proved checkpoints, among the newest ones on disk.")
DAMAGED = _gauge("checkpoint_damaged", "Checkpoints with a damage, by kind of damage.", "kind")
DAMAGED_INFO = _gauge(
    "checkpoint_damaged_info", "1 for each damaged checkpoint; the label has its path.", "path"
)
DAMAGED_STEP = _gauge("checkpoint_damaged_step", "Step of the newest damaged checkpoint.")
RESUME_DAMAGED = _gauge(
    "checkpoint_resume_damaged",
    "Whether the checkpoint that the framework takes when it resumes is damaged, or is incomplete "
    "and no longer written to.",
)
RESUME_PROBLEM_INFO = _gauge(
    "checkpoint_resume_problem_info",
    "1 where that is so; `problem` names the checkpoint, its file and the damage, `kind` the kind "
    "of damage, empty of an incomplete one.",
    *("problem", "kind"),
)


class CheckpointsCollector(Collector):
    """Exports the latest scan of each kind of checkpoint; never accesses a disk itself."""

    name = "checkpoints"
    metrics = _table.metrics

    def __init__(
        self,
        runs: Sequence[RunConfig],
        *,
        disk_label: Callable[[Mount], str] = lambda mount: mount.point,
        state_folder: Path | None = None,
        filesystem: FileSystem | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`disk_label` returns the label that the disk collector uses for a mounted disk."""
        self._disk_label = disk_label
        self._now = now
        specs = [spec for run in runs for spec in checkpoint_specs(run)]
        self._pollers, self._provers = make_pollers(specs, state_folder, now, filesystem)

    def take_over_from(self, predecessor: Self) -> None:
        """Continues with the scanners of `predecessor` and their state."""
        self._pollers.take_over_from(predecessor._pollers)
        self._provers.take_over_from(predecessor._provers)

    def newest_checkpoints(self) -> Iterator[tuple[str, str, int, float, float | None]]:
        """Yields run, kind, step, and end and start of the save of each kind's newest checkpoint.

        Only of complete ones; the start is None where it is a single file.
        Does not block; thread-safe.
        """
        for spec, seen in self._pollers.last_results():
            newest = seen.value.result.newest
            if newest is not None and (step := newest.step(spec.layout.step_offset)) is not None:
                took = seen.value.save_seconds
                ended = newest.completed_at
                yield (*spec.labels, step, ended, None if took is None else ended - took)

    def complete_checkpoints(self) -> Iterator[tuple[str, list[tuple[int, float]]]]:
        """Yields the run, and step and time of its newest complete checkpoints, of each kind.

        Does not block; thread-safe.
        """
        for spec, seen in self._pollers.last_results():
            yield (
                spec.run,
                [
                    (step, one.completed_at)
                    for one in seen.value.result.complete
                    if (step := one.step(spec.layout.step_offset)) is not None
                ],
            )

    def resume_points(self) -> Iterator[tuple[str, list[tuple[int, float]]]]:
        """Yields the run, and step and time of all from which a resume is sound, of each kind.

        These are the proved checkpoints; where the run resumes from a record, its last record
        alone. Does not block; thread-safe.
        """
        proofs = dict(self.proofs())
        for spec, seen in self._pollers.last_results():
            if spec.layout.recovery is not None:
                record = seen.value.recovery
                yield spec.run, [] if record is None else record.resume_points
            elif spec.labels in proofs:
                yield spec.run, proofs[spec.labels].resume_points

    def proofs(self) -> Iterator[tuple[tuple[str, str], ProofSnapshot]]:
        """Yields run and kind, and what is proved of them. Does not block; thread-safe."""
        for spec, seen in self._provers.last_results():
            yield spec.labels, seen.value

    def saves_in_progress(self) -> Iterator[tuple[str, float | None]]:
        """Yields, for each scanned kind, the run and the start of a save in progress, or None.

        Does not block; thread-safe.
        """
        for spec, seen in self._pollers.last_results():
            in_progress = seen.value.in_progress
            saves = seen.value.is_saving(spec.layout.completeness, self._now())
            yield spec.run, in_progress[1] if in_progress is not None and saves else None

    def collect(self) -> Iterable[Family]:
        if not len(self._pollers):
            raise NoData("no checkpoints are configured")
        return self.families(self._samples())

    def _samples(self) -> Iterator[Sample]:
        now = self._now()
        for spec, poller in self._pollers:
            seen = poller.result()
            yield LAST_SCAN, spec.labels, poller.last_known_at
            if seen is None:
                continue
            for metric, value in _values(spec, seen.value, now).items():
                yield metric, spec.labels, value
            result = seen.value.result
            if (newer := seen.value.in_progress) is not None:
                yield INCOMPLETE_INFO, (*spec.labels, printable(newer[0].name.text)), 1
            if result.others and not (
                result.complete_count or result.incomplete_count or result.unexamined_count
            ):
                yield OTHERS_INFO, (*spec.labels, printable(", ".join(result.others[:3]))), 1
            if not seen.value.folders and spec.named_folder:
                yield MISSING_INFO, (*spec.labels, printable(spec.named_folder)), 1
            recovery = seen.value.recovery
            if recovery is not None and recovery.missing:
                yield RECOVERY_MISSING, (*spec.labels, printable(recovery.missing)), 1
            yield from self._capacity_samples(spec, seen.value)
        self._provers.start()
        for spec, proofs in self._provers.last_results():
            yield from _proof_samples(spec, proofs.value)

    def _capacity_samples(self, spec: CheckpointSpec, seen: CheckpointSnapshot) -> Iterator[Sample]:
        newest, space = seen.result.newest, seen.space
        if newest is None or not newest.size or space is None or space.free is None:
            return
        mount = space.mount
        path = str(spec.location.path) if mount is None else self._disk_label(mount)
        yield CHECKPOINTS_LEFT, (*spec.labels, printable(path)), space.free / newest.size


def _expected_interval(spec: CheckpointSpec, observed: float | None) -> float | None:
    """Returns the expected interval in seconds.

    A checkpoint that must be unchanged for 30 s is never younger: with saves each 10 s the newest
    complete one would always be overdue.
    """
    expected = spec.interval or observed
    return None if expected is None else max(expected, spec.layout.completeness.settle_seconds)


def _values(
    spec: CheckpointSpec, found: CheckpointSnapshot, now: float
) -> Mapping[Metric, float | None]:
    """Returns all values of one kind, except those of its disk."""
    result = found.result
    values: dict[Metric, float | None] = {
        FOLDERS: found.folders,
        EXPECTED_INTERVAL: _expected_interval(spec, found.interval),
    }
    newest, offset = result.newest, spec.layout.step_offset
    if newest is not None:
        values |= {
            STEP: newest.step(offset),
            TIME: newest.completed_at,
            SIZE: newest.size,
            SAVE_DURATION: found.save_seconds,
        }
    if found.folders:
        in_progress = found.in_progress
        values |= {
            COMPLETE: result.complete_count,
            INCOMPLETE: result.incomplete_count,
            UNEXAMINED: result.unexamined_count,
            IS_SAVING: found.is_saving(spec.layout.completeness, now),
        }
        if in_progress is not None:
            values |= {
                INCOMPLETE_STEP: in_progress[0].step(offset),
                INCOMPLETE_TIME: in_progress[1],
                IS_SETTLING: now - in_progress[0].changed_at
                < spec.layout.completeness.settle_seconds,
            }
    if (recovery := found.recovery) is not None:
        step = None if newest is None else newest.step(offset)
        values |= {RECOVERY_STEP: recovery.step, RECOVERY_MATCHES: recovery.matches(step)}
    return values


def _proof_samples(spec: CheckpointSpec, proofs: ProofSnapshot) -> Iterator[Sample]:
    if not proofs.checkpoints and not proofs.tracker_problem:
        return
    yield PROVED, spec.labels, proofs.count("proved")
    yield RESUME_DAMAGED, spec.labels, bool(proofs.resume_problem)
    if proofs.resume_problem:
        problem = printable(proofs.resume_problem)[:MAX_PROBLEM_LENGTH]
        yield RESUME_PROBLEM_INFO, (*spec.labels, problem, proofs.resume_kind), 1
    for kind, count in proofs.damage_counts().items():
        yield DAMAGED, (*spec.labels, kind), count
    damaged = [one for one in proofs.checkpoints if one.state == "damaged"]
    if damaged:
        yield DAMAGED_STEP, spec.labels, damaged[0].step
    for one in damaged:
        if one.path.isprintable():
            yield DAMAGED_INFO, (*spec.labels, one.path), 1
    if (newest := proofs.newest_proved) is not None:
        yield PROVED_STEP, spec.labels, newest.step
        newer = proofs.checkpoints[: proofs.checkpoints.index(newest)]
        unread = [one.step for one in newer if one.state == "unproved" and one.step is not None]
        yield UNPROVED_STEP, spec.labels, min(unread, default=None)
        yield PROVED_TIME, spec.labels, newest.step_dir.completed_at
        if newest.path.isprintable():  # a label is UTF-8, and another path would be a wrong one
            yield PROVED_INFO, (*spec.labels, newest.path), 1
