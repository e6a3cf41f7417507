"""Rules that decide whether a checkpoint or batch on disk is complete. Pure."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

CLOCK_TOLERANCE_SECONDS = 2.0
"""Seconds by which a file may seem newer than a file written after it: clocks of network mounts
differ, and some timestamps are whole seconds."""


_NAMED_AS_DATA = re.compile(
    r"(?i)ckpt|checkpoint|\.(?:arrow|bin|distcp|gz|h5|hdf5|jsonl?|keras|msgpack|np[yz]|parquet"
    r"|pickle|pkl|pth?|safetensors|tar|zip|zst)$"
)


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file: its bytes, and its last change in Unix seconds."""

    size: int
    modified: float


@dataclass(frozen=True, slots=True)
class StepDirContent:
    """The files of one checkpoint or batch, complete or not."""

    name: str
    step: int
    files: Mapping[str, FileInfo]
    """By path relative to the entry; an entry that is itself a file has the empty path."""
    texts: Mapping[str, str]
    """Text of the files that the rule reads; missing files are absent."""
    whole_files: Mapping[str, bool] = field(default_factory=dict)
    """Whether each file of tensors is whole, by path; only if the rule checks these files."""

    @property
    def changed_at(self) -> float:
        """The time of the last write; 0 if there are no files."""
        return max((file.modified for file in self.files.values()), default=0.0)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())

    @property
    def half_written_at(self) -> float:
        """When half of its bytes had been written; 0 if there are no files.

        Small files added later do not change it, nor do files copied with their timestamps.
        """
        size, so_far = self.size, 0
        for file in sorted(self.files.values(), key=lambda file: file.modified):
            so_far += file.size
            if 2 * so_far >= size:
                return file.modified
        return 0.0


@dataclass(frozen=True, slots=True)
class FolderContent:
    """The files beside the entries that a rule reads."""

    texts: Mapping[str, str]
    now: float
    modified: Mapping[str, float] = field(default_factory=dict)
    """Last change of these files, in Unix seconds."""


class CompletenessRule(ABC):
    """Decides whether an entry is complete; its existence alone proves nothing."""

    @property
    def files_to_read(self) -> tuple[str, ...]:
        """Small files of the entry whose text the rule needs."""
        return ()

    @property
    def folder_files_to_read(self) -> tuple[str, ...]:
        """Small files of the folder whose text the rule needs."""
        return ()

    @property
    def checks_tensor_files(self) -> bool:
        """Whether the rule needs to know if the files of tensors are whole."""
        return False

    @property
    def settle_seconds(self) -> float:
        """Time without changes that the rule requires, at most."""
        return 0.0

    def ignores(self, name: str, files: Mapping[str, FileInfo]) -> bool:
        """Whether the entry `name` with these `files` only has a name like one, and is none."""
        return False

    @abstractmethod
    def is_complete(self, step_dir: StepDirContent, folder: FolderContent) -> bool:
        """Whether `step_dir` is complete."""

    def is_excluded(self, step: int, folder: FolderContent) -> bool:
        """Whether the files beside an entry show that it is not complete, whatever is in it."""
        return False

    def completed_at(self, step_dir: StepDirContent, folder: FolderContent) -> float:
        """Returns when a complete `step_dir` became complete, in Unix seconds."""
        return step_dir.changed_at

    def is_renewed(self, step_dir: StepDirContent, folder: FolderContent) -> bool:
        """Whether the proof that `step_dir` is complete is as new as its last write.

        Matters for an entry that is written again: the proof of the first save is still there.
        """
        return step_dir.changed_at <= self._proven_at(step_dir, folder) + CLOCK_TOLERANCE_SECONDS

    def _proven_at(self, step_dir: StepDirContent, folder: FolderContent) -> float:
        """Returns the last change of the file that is the proof; infinity if there is no file."""
        return math.inf


@dataclass(frozen=True, slots=True)
class MarkerRule(CompletenessRule):
    """Requires files that are written last.

    Each shell pattern of `all_of` must match a file, and none of `none_of`. With `last` the newest
    of these files must not be older than any other: for a folder that is written to again while
    the old marker is still there.
    """

    all_of: tuple[str, ...]
    none_of: tuple[str, ...] = ()
    last: bool = False

    def is_complete(self, step_dir: StepDirContent, folder: FolderContent) -> bool:
        if _matching_files(step_dir, *self.none_of):
            return False
        if not all(_matching_files(step_dir, pattern) for pattern in self.all_of):
            return False
        return not self.last or self.is_renewed(step_dir, folder)

    def _proven_at(self, step_dir: StepDirContent, folder: FolderContent) -> float:
        return max(file.modified for file in _matching_files(step_dir, *self.all_of))


@dataclass(frozen=True, slots=True)
class RenamedRule(CompletenessRule):
    """For entries written under a temporary name and renamed when they are complete."""

    def is_complete(self, step_dir: StepDirContent, folder: FolderContent) -> bool:
        return any(file.size for file in step_dir.files.values())


@dataclass(frozen=True, slots=True)
class _FolderFileRule(CompletenessRule):
    """Requires a `file` beside the entries."""

    file: str

    @property
    def folder_files_to_read(self) -> tuple[str, ...]:
        return (self.file,)

    def _proven_at(self, step_dir: StepDirContent, folder: FolderContent) -> float:
        return folder.modified.get(self.file, math.inf)


@dataclass(frozen=True, slots=True)
class TrackerRule(_FolderFileRule):
    """Requires a file beside the entries that names this step or a later one.

    `pattern` has the group `step`, in the numbering of the entries' names. The file proves only
    what was written before it: after a resume from an older checkpoint it names a step of the
    previous attempt until the first save ends.
    """

    pattern: str = r"^\s*(?P<step>\d+)\s*$"

    def is_complete(self, step_dir: StepDirContent, folder: FolderContent) -> bool:
        is_named = self._newest(folder) is not None and not self.is_excluded(step_dir.step, folder)
        if not is_named or not step_dir.files:
            return False
        proven_at = self._proven_at(step_dir, folder)
        return step_dir.half_written_at <= proven_at + CLOCK_TOLERANCE_SECONDS

    def is_excluded(self, step: int, folder: FolderContent) -> bool:
        newest = self._newest(folder)
        return newest is not None and step > newest

    def completed_at(self, step_dir: StepDirContent, folder: FolderContent) -> float:
        is_newest = step_dir.step == self._newest(folder)
        return max(step_dir.changed_at, folder.modified.get(self.file, 0.0) if is_newest else 0.0)

    def _newest(self, folder: FolderContent) -> int | None:
        match = re.search(self.pattern, folder.texts.get(self.file, ""))
        step = None if match is None else match["step"]
        return int(step) if step is not None and step.isdecimal() else None


@dataclass(frozen=True, slots=True)
class JsonStepRule(CompletenessRule):
    """Requires a JSON file in the entry, written last, that parses and has its step at `key`."""

    file: str
    key: str
    none_of: tuple[str, ...] = ()

    @property
    def files_to_read(self) -> tuple[str, ...]:
        return (self.file,)

    def is_complete(self, step_dir: StepDirContent, folder: FolderContent) -> bool:
        if _matching_files(step_dir, *self.none_of):
            return False
        try:
            record = json.loads(step_dir.texts.get(self.file, ""), object_hook=self._only_key)
        except (ValueError, RecursionError):
            return False
        return isinstance(record, dict) and record.get(self.key) == step_dir.step

    def _proven_at(self, step_dir: StepDirContent, folder: FolderContent) -> float:
        return step_dir.files[self.file].modified

    def _only_key(self, record: dict[str, object]) -> dict[str, object] | None:
        """Drops everything else while parsing: the file may contain the whole log of the run."""
        return {self.key: record[self.key]} if self.key in record else None


@dataclass(frozen=True, slots=True)
class ListedRule(_FolderFileRule):
    """Requires a JSON file beside the entries that lists the names of complete entries."""

    def is_complete(self, step_dir: StepDirContent, folder: FolderContent) -> bool:
        return f'"{step_dir.name}"' in folder.texts.get(self.file, "")


@dataclass(frozen=True, slots=True)
class SettledRule(CompletenessRule):
    """For entries without a proof: requires files, and no change for some `seconds`.

    Each pattern of `all_of` must match a file; they should include the file written last. A file of
    tensors must be whole: a save that was killed leaves part of one, which does not change either.
    If the entry is a single file, being whole is a proof, and no time passes.
    """

    all_of: tuple[str, ...]
    seconds: float = 30.0

    def is_complete(self, step_dir: StepDirContent, folder: FolderContent) -> bool:
        has_all = all(_matching_files(step_dir, pattern) for pattern in self.all_of)
        if not has_all or not all(step_dir.whole_files.values()):
            return False
        is_proven = "" in step_dir.whole_files
        return is_proven or folder.now - step_dir.changed_at >= self.seconds

    def ignores(self, name: str, files: Mapping[str, FileInfo]) -> bool:
        """An empty file such as `rank-began-0` is a mark; `step-10.pt` would be a lost save."""
        return "" in files and not files[""].size and _NAMED_AS_DATA.search(name) is None

    @property
    def checks_tensor_files(self) -> bool:
        return True

    @property
    def settle_seconds(self) -> float:
        return self.seconds


@dataclass(frozen=True, slots=True)
class _Combined(CompletenessRule):
    rules: tuple[CompletenessRule, ...]

    @property
    def files_to_read(self) -> tuple[str, ...]:
        return tuple(name for rule in self.rules for name in rule.files_to_read)

    @property
    def folder_files_to_read(self) -> tuple[str, ...]:
        return tuple(name for rule in self.rules for name in rule.folder_files_to_read)

    @property
    def checks_tensor_files(self) -> bool:
        return any(rule.checks_tensor_files for rule in self.rules)

    @property
    def settle_seconds(self) -> float:
        return max((rule.settle_seconds for rule in self.rules), default=0.0)


@dataclass(frozen=True, slots=True)
class AnyOf(_Combined):
    """Requires one of several rules, where versions of a framework differ."""

    def is_complete(self, step_dir: StepDirContent, folder: FolderContent) -> bool:
        return any(rule.is_complete(step_dir, folder) for rule in self.rules)

    def is_excluded(self, step: int, folder: FolderContent) -> bool:
        return all(rule.is_excluded(step, folder) for rule in self.rules)

    def completed_at(self, step_dir: StepDirContent, folder: FolderContent) -> float:
        satisfied = [rule for rule in self.rules if rule.is_complete(step_dir, folder)]
        times = (rule.completed_at(step_dir, folder) for rule in satisfied)
        return min(times, default=step_dir.changed_at)

    def is_renewed(self, step_dir: StepDirContent, folder: FolderContent) -> bool:
        satisfied = (rule for rule in self.rules if rule.is_complete(step_dir, folder))
        return any(rule.is_renewed(step_dir, folder) for rule in satisfied)


@dataclass(frozen=True, slots=True)
class AllOf(_Combined):
    """Requires all of several rules."""

    def is_complete(self, step_dir: StepDirContent, folder: FolderContent) -> bool:
        return all(rule.is_complete(step_dir, folder) for rule in self.rules)

    def is_excluded(self, step: int, folder: FolderContent) -> bool:
        return any(rule.is_excluded(step, folder) for rule in self.rules)

    def completed_at(self, step_dir: StepDirContent, folder: FolderContent) -> float:
        return max(rule.completed_at(step_dir, folder) for rule in self.rules)

    def is_renewed(self, step_dir: StepDirContent, folder: FolderContent) -> bool:
        return all(rule.is_renewed(step_dir, folder) for rule in self.rules)


def rules_in(rule: CompletenessRule) -> Iterator[CompletenessRule]:
    """Yields `rule` and the rules that it combines."""
    yield rule
    for part in rule.rules if isinstance(rule, _Combined) else ():
        yield from rules_in(part)


def _matching_files(step_dir: StepDirContent, *patterns: str) -> list[FileInfo]:
    return [
        file
        for name, file in step_dir.files.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    ]
