"""Scans one kind of rollouts of a run periodically."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from trainwarden_exporter.frameworks.base import RolloutLayout
from trainwarden_exporter.rollouts.rank_files import AllRanksRule, RankCounter
from trainwarden_exporter.rollouts.write_access import WriteTarget, read_write_target
from trainwarden_exporter.runtime.account_access import reading_for
from trainwarden_exporter.step_dirs.completeness import StepDir
from trainwarden_exporter.step_dirs.filesystem import FileSystem
from trainwarden_exporter.step_dirs.locations import InstanceFinder, StepDirScanner
from trainwarden_exporter.step_dirs.names import NameParser
from trainwarden_exporter.step_dirs.result import EMPTY_RESULT, ScanResult, newest_of

INTERVAL = 5.0
"""Seconds between two scans."""


@dataclass(frozen=True, slots=True)
class RolloutSnapshot:
    """State of the rollouts of one kind. Times are Unix seconds."""

    folders: int = 0
    """Existing folders; 0 before the first exists."""
    result: ScanResult = EMPTY_RESULT
    consumed: StepDir | None = None
    """The newest complete entry that is gone: consumed, then deleted."""
    ranks: int | None = None
    """Ranks whose part of the newest entry exists, complete or not."""
    expected_ranks: int | None = None
    write_target: WriteTarget | None = None
    """Where the next entry will be written, if accessible."""

    def newest(self, needed: int | None, offset: int) -> StepDir | None:
        """Returns the newest complete entry for a trainer that needs step `needed` next.

        A deleted entry counts if it may have been consumed. If it was for a later step, it was
        removed when the run resumed from an earlier step.
        """
        there, consumed = self.result.newest, self.consumed
        if consumed is None or (there is not None and there.sort_key >= consumed.sort_key):
            return there
        step = consumed.step(offset)
        return consumed if step is None or needed is None or step <= needed else there


class RolloutScanner:
    """Poll function of a poller: each call is one scan. For one thread."""

    def __init__(
        self,
        finder: InstanceFinder,
        layout: RolloutLayout,
        *,
        ranks: int | None = None,
        filesystem: FileSystem | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ranks` is the number of ranks of a complete entry; learned when None."""
        self._account = finder.location.account
        self._ranks = RankCounter(layout.rank, ranks) if layout.rank else None
        self._step_dirs = StepDirScanner(
            finder,
            layout.folder,
            NameParser(layout.entry),
            AllRanksRule(self._ranks, layout.completeness) if self._ranks else layout.completeness,
            filesystem=filesystem,
            now=now,
            clock=clock,
        )
        self._newest: StepDir | None = None
        self._folders: frozenset[Path] = frozenset()

    def __call__(self) -> RolloutSnapshot:
        """Raises OSError if a folder cannot be read."""
        with reading_for(self._account):
            return self._read()

    def _read(self) -> RolloutSnapshot:
        result = self._scan()
        folders = frozenset(self._step_dirs.folders)
        if not folders & self._folders:  # another run's are not this one's
            self._newest = None
        self._folders = folders
        step_dirs, where = _all_step_dirs(result), self._step_dirs.path
        newest = step_dirs[0].name.text if step_dirs else None
        seen = RolloutSnapshot(
            len(folders),
            result,
            self._consumed(result),
            write_target=read_write_target(where, newest) if where else None,
        )
        if self._ranks is None:
            return seen
        files = step_dirs[0].files if step_dirs else None
        there = None if files is None else len(self._ranks.ranks_in(files))
        return replace(seen, ranks=there, expected_ranks=self._ranks.expected)

    def _scan(self) -> ScanResult:
        result = self._step_dirs.scan()
        if self._ranks is not None and self._ranks.learn(_all_step_dirs(result)):
            # entries assessed with another number of ranks must be assessed again
            self._step_dirs.reset()
            result = self._step_dirs.scan()
        return result

    def _consumed(self, result: ScanResult) -> StepDir | None:
        if self._newest is None or (
            result.newest is not None and result.newest.sort_key > self._newest.sort_key
        ):
            self._newest = result.newest
        newest = self._newest
        there = newest is None or any(
            step_dir.name == newest.name for step_dir in _all_step_dirs(result)
        )
        return None if there else newest


def _all_step_dirs(result: ScanResult) -> tuple[StepDir, ...]:
    """Returns complete and incomplete entries, newest first."""
    return newest_of((*result.complete, *result.incomplete))
