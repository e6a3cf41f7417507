"""Decides whether an entry is complete, by what was seen of it now and before. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwarden_exporter.entries.naming import EntryName
from trainwarden_exporter.entries.walking import Stamp, Walk, is_passing
from trainwarden_exporter.layouts.proofs import EntrySeen, FileSeen, FolderSeen, Proof

REST = 30.0
"""Seconds for which nothing may change in an entry that was complete and is written to again."""

Files = Mapping[str, FileSeen]


@dataclass(frozen=True, slots=True)
class Doubt:
    """What was complete once, and is not as it was."""

    since: float
    """When it was last seen to change."""
    lost: bool = False
    """Whether a file of it is gone: a removal that stands still is no rest."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What tells of an entry at its next look whether it is still the same."""

    stamp: Stamp
    witnesses: Files
    """The files written first and last, and the largest: a save that begins anew changes one."""
    folders: Mapping[str, Stamp] = field(default_factory=dict)
    """The folders in it: what is added or goes away changes one."""
    proven: float | None = None
    """When it had last been written to as it was found complete; None if it never was."""
    doubt: Doubt | None = None
    """Whether it was complete, and then something of it was changed or went away."""
    steady: bool = False
    """Whether it need not be walked through before its stamp, a folder or a witness changes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A checkpoint or batch as far as it is known. Moments are Unix seconds."""

    name: EntryName
    complete: bool
    completed: float
    """When it became so; 0 while it is not."""
    size: int
    """Bytes of all its files."""
    changed: float
    """When it was last written to; for an empty one, when it itself last changed."""
    written: float
    """When half of its bytes had been written, which tells best which of two is newer."""
    memory: Memory
    files: Files | None = field(default=None, repr=False)
    """What it consists of; kept of the newest ones."""

    def step(self, offset: int) -> int | None:
        """The step in the run's own counting, which is `offset` ahead of that in the names."""
        return None if self.name.number is None else self.name.number + offset

    @property
    def empty(self) -> bool:
        return not self.memory.witnesses

    @property
    def order(self) -> tuple[float, tuple[int, str]]:
        """By which the newest of several is told.

        Not the step: a run that resumes from an older checkpoint writes lower ones anew, and leaves
        the higher ones where they are.
        """
        return (self.written, self.name.order)

    def follows(self, other: Entry | None) -> bool:
        """Whether it was begun after `other`, which is complete."""
        if other is None:
            return True
        if self.empty:  # its time may be that of the removal of all it held
            return self.name.order[0] > other.name.order[0]
        return self.written > other.written

    def began(self, after: float = 0.0) -> float:
        """When its first file was written, as far as known.

        Files from before `after`, when the save before ended, were copied with their time.
        """
        moments = [file.modified for file in (self.files or {}).values()]
        first = min(moments, default=self.changed)
        return min((moment for moment in moments if moment > after), default=first)


def judge(
    before: Entry | None,
    name: EntryName,
    walk: Walk,
    *,
    texts: Mapping[str, str],
    proof: Proof,
    around: FolderSeen,
) -> Entry:
    """What is known of an entry now that it was walked through.

    An entry whose proof holds is complete. Not so if something that it consisted of is changed or
    goes away: then its old proof may still lie there, and it counts again once that was renewed and
    nothing has changed for `REST` seconds. What is added to a complete entry takes nothing from it.
    """
    if before is not None and not before.memory.stamp.same_as(walk.stamp):
        before = None  # another one of the same name: what was known is of no use
    number = -1 if name.number is None else name.number
    seen = EntrySeen(name.text, number, walk.files, texts)
    holds = not (name.partial or walk.moving or walk.cut) and proof.holds(seen, around)
    proven = None if before is None else before.memory.proven
    doubt = None if before is None else _doubt(before, walk, around.now)
    if doubt is not None and holds and around.now - doubt.since >= REST:
        written = not doubt.lost or proven is None or seen.changed > proven
        doubt = None if written and proof.renewed(seen, around) else doubt
    complete = holds and doubt is None
    changed = seen.changed or walk.stamp.modified
    completed = proof.completed(seen, around) if complete else 0.0
    if before is not None and before.complete and complete:
        # what is added long after it was complete does not make it any younger
        steady = before.memory.steady
        completed = before.completed if steady else max(completed, before.completed)
    return Entry(
        name,
        complete,
        completed,
        seen.size,
        changed,
        seen.written,
        Memory(
            walk.stamp,
            _witnesses(walk.files),
            walk.folders,
            proven=seen.changed if complete else proven,
            doubt=doubt,
            steady=complete and (_is_as_before(before, walk) or around.now - changed > REST),
        ),
        walk.files,
    )


def _doubt(before: Entry, walk: Walk, now: float) -> Doubt | None:
    """The doubt in which an entry stands by what became of it since `before`."""
    doubt = before.memory.doubt
    if before.memory.proven is None:
        return None
    known = before.memory.witnesses if before.files is None else before.files
    gone = walk.moving or any(path not in walk.files and not is_passing(path) for path in known)
    lost = gone or (doubt is not None and doubt.lost)
    if doubt is not None:
        return Doubt(doubt.since if _is_as_before(before, walk) else now, lost)
    return Doubt(now, lost) if gone or _is_broken(known, walk.files) else None


def _is_broken(known: Files, files: Files) -> bool:
    """Whether a file that was `known` is another one now."""
    return any(path in files and files[path] != file for path, file in known.items())


def _is_as_before(before: Entry | None, walk: Walk) -> bool:
    return before is not None and before.files == walk.files


def _witnesses(files: Files) -> Files:
    if not files:
        return {}
    first = min(files, key=lambda path: files[path].modified)
    last = max(files, key=lambda path: files[path].modified)
    largest = max(files, key=lambda path: files[path].size)
    return {path: files[path] for path in (first, last, largest)}
