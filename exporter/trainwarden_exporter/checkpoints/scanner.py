"""Scans the checkpoints of a run periodically."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainwarden_exporter.checkpoints.recovery_info import RecoveryRecord, read_recovery
from trainwarden_exporter.checkpoints.specs import SAVING_SECONDS, CheckpointSpec
from trainwarden_exporter.disk.usage import DiskUsage, read_disk_usage
from trainwarden_exporter.frameworks.completeness_rules import CompletenessRule, SettledRule
from trainwarden_exporter.runtime.account_access import reading_for
from trainwarden_exporter.step_dirs.completeness import StepDir
from trainwarden_exporter.step_dirs.filesystem import FileSystem
from trainwarden_exporter.step_dirs.locations import InstanceFinder, StepDirScanner
from trainwarden_exporter.step_dirs.names import NameParser
from trainwarden_exporter.step_dirs.result import (
    EMPTY_RESULT,
    MAX_LISTED,
    WHOLE_SHARE,
    CompletionIntervals,
    ScanResult,
)

INTERVAL = 10.0
"""Seconds between two scans."""

STILL_SECONDS = 5.0
"""Seconds without a write after which a save that has all files of the one before is over."""
_DIGITS = re.compile(r"\d+")

Measure = Callable[[Path], DiskUsage]


def _measure(path: Path) -> DiskUsage:
    return read_disk_usage(path, or_above=True)


@dataclass(frozen=True, slots=True)
class CheckpointSnapshot:
    """State of the checkpoints of one kind. Times are Unix seconds."""

    folders: int = 0
    """Existing folders; 0 before the first exists."""
    result: ScanResult = EMPTY_RESULT
    interval: float | None = None
    """Observed median interval in seconds."""
    recovery: RecoveryRecord | None = None
    results: Mapping[str, ScanResult] = field(default_factory=dict)
    """The result of each folder."""
    space: DiskUsage | None = None
    """Usage of the disk that holds them; None if unavailable."""

    @property
    def save_seconds(self) -> float | None:
        """Returns how long the newest complete checkpoint took to write; None for a single file."""
        newest = self.result.newest
        if newest is None or newest.files is None or len(newest.files) < 2:  # noqa: PLR2004 - the first and the last write
            return None
        before = self.result.complete[1:2]
        began_at = newest.began_at(after=before[0].completed_at if before else 0.0)
        return max(0.0, newest.completed_at - began_at)

    @property
    def in_progress(self) -> tuple[StepDir, float] | None:
        """Returns the incomplete checkpoint newer than the newest complete one, and its start."""
        if (step_dir := self.result.in_progress) is None:
            return None
        newest = self.result.newest
        return step_dir, step_dir.began_at(after=0.0 if newest is None else newest.completed_at)

    def is_saving(self, rule: CompletenessRule, now: float) -> bool:
        """Whether a checkpoint is being written, as far as its files show.

        Where `rule` waits for a proof, its save is not over before that.
        """
        one = self.result.in_progress
        if one is None or now - one.changed_at >= SAVING_SECONDS:
            return False
        is_still = isinstance(rule, SettledRule) and now - one.changed_at >= STILL_SECONDS
        return not (is_still and self._has_all_files(one))

    def _has_all_files(self, one: StepDir) -> bool:
        """Whether every file of the complete checkpoint before was written for this one, too."""
        before = self.result.newest
        if before is None or before.files is None or one.files is None:
            return False
        is_new = all(file.modified > before.completed_at for file in one.files.values())
        names, known = map(_without_numbers, (one.files, before.files))
        return is_new and names == known and one.size >= WHOLE_SHARE * before.size


def _without_numbers(names: Iterable[str]) -> list[str]:
    return sorted(_DIGITS.sub("0", name) for name in names)


class CheckpointScanner:
    """Poll function of a poller: each call is one scan. For one thread."""

    def __init__(
        self,
        spec: CheckpointSpec,
        *,
        finder: InstanceFinder | None = None,
        filesystem: FileSystem | None = None,
        measure: Measure = _measure,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        listed: int = MAX_LISTED,
    ) -> None:
        layout = spec.layout
        self._spec = spec
        self._filesystem = filesystem or FileSystem()
        self._measure = measure
        self._step_dirs = StepDirScanner(
            finder or InstanceFinder(spec.location, clock=clock),
            layout.folder,
            NameParser(layout.entry, layout.partial),
            layout.completeness,
            filesystem=self._filesystem,
            now=now,
            clock=clock,
            listed=listed,
        )
        self._intervals = CompletionIntervals()
        self._folders: frozenset[Path] = frozenset()

    def __call__(self) -> CheckpointSnapshot:
        """Raises OSError if a folder cannot be read."""
        with reading_for(self._spec.location.account):
            return self._scan()

    def _scan(self) -> CheckpointSnapshot:
        result = self._step_dirs.scan()
        folders = frozenset(self._step_dirs.folders)
        if not folders & self._folders:
            self._intervals = CompletionIntervals()  # belongs to another run
        self._folders = folders
        return CheckpointSnapshot(
            len(folders),
            result,
            self._intervals.update(result.complete),
            self._read_recovery(),
            {str(path): found for path, found in self._step_dirs.folders.items()},
            self._read_space(),
        )

    def _read_recovery(self) -> RecoveryRecord | None:
        layout, instance = self._spec.layout.recovery, self._step_dirs.instance
        if layout is None or instance is None:
            return None
        return read_recovery(layout, self._spec.location.path, instance, self._filesystem)

    def _read_space(self) -> DiskUsage | None:
        where = self._step_dirs.path
        try:
            return None if where is None else self._measure(where)
        except OSError:
            return None  # the disk collector reports the error
