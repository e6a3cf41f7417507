"""Decides whether an entry is complete, from current and earlier observations. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwarden_exporter.frameworks.completeness_rules import (
    CompletenessRule,
    FileInfo,
    FolderContent,
    StepDirContent,
)
from trainwarden_exporter.step_dirs.names import StepDirName
from trainwarden_exporter.step_dirs.tree_walk import Stamp, WalkResult, is_temporary

QUIET_SECONDS = 30.0
"""Seconds without changes after which a completed and modified entry counts as complete again."""

FilesByPath = Mapping[str, FileInfo]


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """State of an entry that was complete and has changed since."""

    last_changed_at: float
    """Time of the last observed change."""
    file_missing: bool = False
    """Whether a file has disappeared: an interrupted removal does not count as settled."""


@dataclass(frozen=True, slots=True)
class ScanMemory:
    """State for detecting changes of an entry in the next scan."""

    stamp: Stamp
    sentinels: FilesByPath
    """The first, the last and the largest file: a new save changes at least one."""
    folders: Mapping[str, Stamp] = field(default_factory=dict)
    """The folders in it: an added or removed file changes one."""
    proven_at: float | None = None
    """Last write at the time it was found complete; None if it never was."""
    uncertainty: Uncertainty | None = None
    """Set if it was complete and has changed since."""
    stable: bool = False
    """Whether a walk is only needed after a change of its stamp, folders or sentinels."""


@dataclass(frozen=True, slots=True)
class StepDir:
    """A checkpoint or batch. Times are Unix seconds."""

    name: StepDirName
    complete: bool
    completed_at: float
    """Completion time; 0 while incomplete."""
    size: int
    """Total bytes of its files."""
    changed_at: float
    """Last write; for an empty entry, its own last change."""
    half_written_at: float
    """When half of its bytes had been written, which best shows which of two is newer."""
    memory: ScanMemory
    files: FilesByPath | None = field(default=None, repr=False)
    """Its files; kept only for the newest entries."""

    def step(self, offset: int) -> int | None:
        """Returns the step in the run's numbering, which is `offset` ahead of the names."""
        return None if self.name.number is None else self.name.number + offset

    @property
    def empty(self) -> bool:
        return not self.memory.sentinels

    @property
    def sort_key(self) -> tuple[float, tuple[int, str]]:
        """Returns the key that sorts entries by age.

        Not by step: a run that resumes from an older checkpoint writes lower steps again, and keeps
        the higher ones.
        """
        return (self.half_written_at, self.name.sort_key)

    def is_newer_than(self, other: StepDir | None) -> bool:
        """Whether it began after the complete entry `other`."""
        if other is None:
            return True
        if self.empty:  # its time may be that of the removal of all it held
            return self.name.sort_key[0] > other.name.sort_key[0]
        return self.half_written_at > other.half_written_at

    def began_at(self, after: float = 0.0) -> float:
        """When its first file was written, as far as known.

        Files from before `after`, when the save before ended, were copied with their time.
        """
        moments = [file.modified for file in (self.files or {}).values()]
        first = min(moments, default=self.changed_at)
        return min((moment for moment in moments if moment > after), default=first)


def assess_step_dir(
    before: StepDir | None,
    name: StepDirName,
    walk: WalkResult,
    *,
    texts: Mapping[str, str],
    rule: CompletenessRule,
    folder_content: FolderContent,
    whole_files: Mapping[str, bool] | None = None,
) -> StepDir:
    """What is known of an entry now that it was walked through.

    An entry whose proof holds is complete. Not so if something that it consisted of is changed or
    goes away: then its old proof may still lie there, and it counts again once that was renewed and
    nothing has changed for `QUIET_SECONDS`. What is added to a complete entry changes nothing.
    """
    if before is not None and not before.memory.stamp.same_as(walk.stamp):
        before = None  # another one of the same name: what was known is of no use
    number = -1 if name.number is None else name.number
    seen = StepDirContent(name.text, number, walk.files, texts, whole_files or {})
    rule_satisfied = not (
        name.partial or walk.changed_during_walk or walk.truncated
    ) and rule.is_complete(seen, folder_content)
    proven_at = None if before is None else before.memory.proven_at
    uncertainty = None if before is None else _uncertainty(before, walk, folder_content.now)
    if (
        uncertainty is not None
        and rule_satisfied
        and (
            folder_content.now - uncertainty.last_changed_at >= QUIET_SECONDS
            or seen.whole_files.get("", False)  # a single file proves itself
        )
    ):
        was_rewritten = (
            not uncertainty.file_missing or proven_at is None or seen.changed_at > proven_at
        )
        uncertainty = (
            None if was_rewritten and rule.is_renewed(seen, folder_content) else uncertainty
        )
    complete = rule_satisfied and uncertainty is None
    changed_at = seen.changed_at or walk.stamp.modified
    completed_at = rule.completed_at(seen, folder_content) if complete else 0.0
    if before is not None and before.complete and complete:
        # files added long after completion do not make it newer
        stable = before.memory.stable
        completed_at = before.completed_at if stable else max(completed_at, before.completed_at)
    return StepDir(
        name,
        complete,
        completed_at,
        seen.size,
        changed_at,
        seen.half_written_at,
        ScanMemory(
            walk.stamp,
            _sentinels(walk.files),
            walk.folders,
            proven_at=seen.changed_at if complete else proven_at,
            uncertainty=uncertainty,
            stable=complete
            and (_is_unchanged(before, walk) or folder_content.now - changed_at > QUIET_SECONDS),
        ),
        walk.files,
    )


def _uncertainty(before: StepDir, walk: WalkResult, now: float) -> Uncertainty | None:
    """Returns the uncertainty from changes since `before`."""
    uncertainty = before.memory.uncertainty
    if before.memory.proven_at is None:
        return None
    known = before.memory.sentinels if before.files is None else before.files
    gone = walk.changed_during_walk or any(
        path not in walk.files and not is_temporary(path) for path in known
    )
    file_missing = gone or (uncertainty is not None and uncertainty.file_missing)
    if uncertainty is not None:
        return Uncertainty(
            uncertainty.last_changed_at if _is_unchanged(before, walk) else now, file_missing
        )
    return Uncertainty(now, file_missing) if gone or _has_changed_file(known, walk.files) else None


def _has_changed_file(known: FilesByPath, files: FilesByPath) -> bool:
    return any(path in files and files[path] != file for path, file in known.items())


def _is_unchanged(before: StepDir | None, walk: WalkResult) -> bool:
    return before is not None and before.files == walk.files


def _sentinels(files: FilesByPath) -> FilesByPath:
    if not files:
        return {}
    first = min(files, key=lambda path: files[path].modified)
    last = max(files, key=lambda path: files[path].modified)
    largest = max(files, key=lambda path: files[path].size)
    return {path: files[path] for path in (first, last, largest)}
