"""What proves that something a run writes is complete. Pure: what was seen is handed in."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

SLACK = 2.0
"""Seconds by which a file may be newer than one that was written after it: clocks of network
mounts, and whole-second time stamps."""


@dataclass(frozen=True, slots=True)
class FileSeen:
    """A file: bytes, and its last change in Unix seconds."""

    size: int
    modified: float


@dataclass(frozen=True, slots=True)
class EntrySeen:
    """A checkpoint or batch as it lies on disk, complete or not."""

    name: str
    step: int
    files: Mapping[str, FileSeen]
    """By path relative to the entry; for an entry that is itself a file, by the empty path."""
    texts: Mapping[str, str]
    """What stands in those of its files that the proof reads; of a missing file, nothing."""

    @property
    def changed(self) -> float:
        """When it was last written to; 0 when it is empty."""
        return max((file.modified for file in self.files.values()), default=0.0)

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files.values())

    @property
    def written(self) -> float:
        """When half of its bytes had been written; 0 when it is empty.

        It does not move when something small is added to an old entry, nor by files that were
        copied with their time.
        """
        size, so_far = self.size, 0
        for file in sorted(self.files.values(), key=lambda file: file.modified):
            so_far += file.size
            if 2 * so_far >= size:
                return file.modified
        return 0.0


@dataclass(frozen=True, slots=True)
class FolderSeen:
    """What stands around the entries."""

    texts: Mapping[str, str]
    """What stands in those files of the folder that the proof reads."""
    now: float
    modified: Mapping[str, float] = field(default_factory=dict)
    """When those files were last changed, in Unix seconds."""


class Proof(ABC):
    """A sign that an entry is complete; that it exists is none."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Small files of the entry whose text is needed."""
        return ()

    @property
    def reads_around(self) -> tuple[str, ...]:
        """Small files of the folder whose text is needed."""
        return ()

    @abstractmethod
    def holds(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        """Whether `entry` is complete."""

    def completed(self, entry: EntrySeen, folder: FolderSeen) -> float:
        """When `entry`, for which the proof holds, became complete, in Unix seconds."""
        return entry.changed

    def renewed(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        """Whether the proof, which holds, is as new as all that it is about.

        Asked of an entry that was complete before and was written to since: its old proof may still
        lie there.
        """
        return True


@dataclass(frozen=True, slots=True)
class Marker(Proof):
    """Files that are written last.

    `all_of` are patterns as of a shell, each of which must match a file; `last` further asks that
    the newest of those is not older than any other file: for a folder that is written to again, in
    which the old marker still lies.
    """

    all_of: tuple[str, ...]
    none_of: tuple[str, ...] = ()
    last: bool = False

    def holds(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        if any(_matching(entry, pattern) for pattern in self.none_of):
            return False
        if not all(_matching(entry, pattern) for pattern in self.all_of):
            return False
        return not self.last or self.renewed(entry, folder)

    def renewed(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        markers = [file for pattern in self.all_of for file in _matching(entry, pattern)]
        return entry.changed <= max(file.modified for file in markers) + SLACK


@dataclass(frozen=True, slots=True)
class Renamed(Proof):
    """It is written under another name and renamed when whole: who bears the name is complete."""

    def holds(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        return any(file.size for file in entry.files.values())


@dataclass(frozen=True, slots=True)
class Tracker(Proof):
    """A file beside the entries that names the newest complete step.

    `pattern` has the group `step`, in the numbering of the entries' names. It proves what had been
    written by then: after a resume from an older checkpoint it names a step of the life before,
    until the first save is over.
    """

    file: str
    pattern: str = r"^\s*(?P<step>\d+)\s*$"

    @property
    def reads_around(self) -> tuple[str, ...]:
        return (self.file,)

    def holds(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        newest = self._newest(folder)
        if newest is None or not entry.files or entry.step > newest:
            return False
        return entry.written <= folder.modified.get(self.file, math.inf) + SLACK

    def completed(self, entry: EntrySeen, folder: FolderSeen) -> float:
        named = folder.modified.get(self.file, 0.0) if entry.step == self._newest(folder) else 0.0
        return max(entry.changed, named)

    def renewed(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        return entry.changed <= folder.modified.get(self.file, math.inf) + SLACK

    def _newest(self, folder: FolderSeen) -> int | None:
        match = re.search(self.pattern, folder.texts.get(self.file, ""))
        step = None if match is None else match["step"]
        return int(step) if step is not None and step.isdecimal() else None


@dataclass(frozen=True, slots=True)
class JsonStep(Proof):
    """A JSON file of the entry, written last, that parses and says the entry's own step."""

    file: str
    key: str
    none_of: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.file,)

    def holds(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        if any(_matching(entry, pattern) for pattern in self.none_of):
            return False
        try:
            said = json.loads(entry.texts.get(self.file, ""), object_hook=self._kept)
        except (ValueError, RecursionError):
            return False
        return isinstance(said, dict) and said.get(self.key) == entry.step

    def renewed(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        return entry.changed <= entry.files[self.file].modified + SLACK

    def _kept(self, said: dict[str, object]) -> dict[str, object] | None:
        """Of an object in the file, what is needed: all that a run has logged may stand in it."""
        return {self.key: said[self.key]} if self.key in said else None


@dataclass(frozen=True, slots=True)
class Listed(Proof):
    """A JSON file beside the entries in which the names of the complete ones stand."""

    file: str

    @property
    def reads_around(self) -> tuple[str, ...]:
        return (self.file,)

    def holds(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        return f'"{entry.name}"' in folder.texts.get(self.file, "")

    def renewed(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        return entry.changed <= folder.modified.get(self.file, math.inf) + SLACK


@dataclass(frozen=True, slots=True)
class Settled(Proof):
    """For what leaves no proof: all that belongs to it is there, and nothing has changed for long.

    `all_of` are patterns of files that must not be missing, the last of which to be written should
    be among them.
    """

    all_of: tuple[str, ...]
    seconds: float = 30.0

    def holds(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        whole = all(_matching(entry, pattern) for pattern in self.all_of)
        return whole and folder.now - entry.changed >= self.seconds


@dataclass(frozen=True, slots=True)
class AnyOf(Proof):
    """One of several proofs, where versions of a framework differ."""

    proofs: tuple[Proof, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(name for proof in self.proofs for name in proof.reads)

    @property
    def reads_around(self) -> tuple[str, ...]:
        return tuple(name for proof in self.proofs for name in proof.reads_around)

    def holds(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        return any(proof.holds(entry, folder) for proof in self.proofs)

    def completed(self, entry: EntrySeen, folder: FolderSeen) -> float:
        holding = (proof for proof in self.proofs if proof.holds(entry, folder))
        return min((proof.completed(entry, folder) for proof in holding), default=entry.changed)

    def renewed(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        holding = (proof for proof in self.proofs if proof.holds(entry, folder))
        return any(proof.renewed(entry, folder) for proof in holding)


@dataclass(frozen=True, slots=True)
class AllOf(Proof):
    """Several proofs, none of which is enough."""

    proofs: tuple[Proof, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(name for proof in self.proofs for name in proof.reads)

    @property
    def reads_around(self) -> tuple[str, ...]:
        return tuple(name for proof in self.proofs for name in proof.reads_around)

    def holds(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        return all(proof.holds(entry, folder) for proof in self.proofs)

    def completed(self, entry: EntrySeen, folder: FolderSeen) -> float:
        return max(proof.completed(entry, folder) for proof in self.proofs)

    def renewed(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        return all(proof.renewed(entry, folder) for proof in self.proofs)


def _matching(entry: EntrySeen, pattern: str) -> list[FileSeen]:
    return [file for name, file in entry.files.items() if fnmatchcase(name, pattern)]
