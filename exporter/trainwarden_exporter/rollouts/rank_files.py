"""Counts the ranks that have written their part of an entry, and learns how many there are."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainwarden_exporter.frameworks.completeness_rules import (
    CompletenessRule,
    FolderContent,
    StepDirContent,
)
from trainwarden_exporter.step_dirs.completeness import FilesByPath, StepDir

FIRST_QUIET_SECONDS = 10.0
"""Seconds without a write after which the ranks of the very first entry count as all."""

LEARNED_FROM = 3
"""Number of entries before the newest from which the number of ranks is learned."""


class RankCounter:
    """Number of ranks of a complete entry, as configured or learned.

    Learned is the maximum of the newest entry and the three before it. An entry with a successor
    will not grow any more, so a reduced number of ranks is learned after three steps.
    """

    def __init__(self, pattern: str, configured: int | None) -> None:
        self.expected = configured
        """None while unknown."""
        self._pattern = re.compile(pattern)
        self._configured = configured

    def ranks_in(self, files: FilesByPath) -> frozenset[str]:
        """Returns the ranks with a part that is not empty."""
        matches = ((self._pattern.fullmatch(path), file) for path, file in files.items())
        return frozenset(match["rank"] for match, file in matches if match and file.size)

    def learn(self, step_dirs: Iterable[StepDir]) -> bool:
        """Learns from all known entries, complete or not, newest first.

        Returns whether the expected number has changed.
        """
        before = self.expected
        counts = [
            len(self.ranks_in(step_dir.files))
            for step_dir in step_dirs
            if step_dir.files is not None
        ]
        if self._configured is None and len(counts) > 1:
            self.expected = max(counts[: LEARNED_FROM + 1]) or None
        return self.expected != before


class AllRanksRule(CompletenessRule):
    """Requires the parts of all ranks, and the other rule."""

    def __init__(self, ranks: RankCounter, rule: CompletenessRule) -> None:
        self._ranks = ranks
        self._rule = rule

    @property
    def files_to_read(self) -> tuple[str, ...]:
        return self._rule.files_to_read

    @property
    def folder_files_to_read(self) -> tuple[str, ...]:
        return self._rule.folder_files_to_read

    def is_complete(self, step_dir: StepDirContent, folder: FolderContent) -> bool:
        present = len(self._ranks.ranks_in(step_dir.files))
        if not present or not self._rule.is_complete(step_dir, folder):
            return False
        if self._ranks.expected is None:
            return folder.now - step_dir.changed_at >= FIRST_QUIET_SECONDS
        return present >= self._ranks.expected

    def completed_at(self, step_dir: StepDirContent, folder: FolderContent) -> float:
        return self._rule.completed_at(step_dir, folder)

    def is_renewed(self, step_dir: StepDirContent, folder: FolderContent) -> bool:
        return self._rule.is_renewed(step_dir, folder)
