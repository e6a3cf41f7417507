"""Keeps the many old entries of a folder in little memory."""

from __future__ import annotations

import json
import math
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

from trainwarden_exporter.entries.judging import Doubt, Entry, Memory
from trainwarden_exporter.entries.names import NameSet, key_of
from trainwarden_exporter.entries.naming import EntryName
from trainwarden_exporter.entries.pace import Pace
from trainwarden_exporter.entries.walking import Stamp
from trainwarden_exporter.layouts.proofs import FileSeen

BOX = 64
"""Entries that are put away together."""

Order = tuple[int, str]
Rank = tuple[float, Order]
NONE: Rank = (-math.inf, (-1, ""))


@dataclass(frozen=True, slots=True)
class _Box:
    """Some entries as text, packed, and what is asked of them without unpacking."""

    packed: bytes
    keys: array[int]
    """Those of their names; see `NameSet`."""
    complete: int
    newest_complete: Rank
    newest_incomplete: Rank
    """The `order` of the newest of each; NONE where there is none."""
    last: Order | None
    """The greatest `order` of a name of those that are steady."""

    def newest(self, *, complete: bool) -> Rank:
        return self.newest_complete if complete else self.newest_incomplete


class Shelf:
    """Entries in boxes, those that were put away first in front. For one thread.

    Each takes about a tenth of what it does in the open. Nothing of it is lost but the list of its
    files, which is only kept of the newest.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._boxes: deque[_Box] = deque()
        self._names = NameSet()
        self.complete = 0
        """So many of them are complete."""

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    @property
    def boxes(self) -> int:
        return len(self._boxes)

    def put(self, entries: Sequence[Entry]) -> None:
        """Put away some, about `BOX`, of which none is here."""
        for entry in entries:
            self._names.add(entry.name.text)
        self._boxes.append(box := _boxed(entries))
        self.complete += box.complete

    def first(self) -> list[Entry]:
        """Take those that have been here longest; none where it is empty."""
        return self._emptied(self._boxes.popleft()) if self._boxes else []

    def take(self, name: str) -> Entry | None:
        """Take the one of that name."""
        if name not in self._names:
            return None
        key = key_of(name)
        index = next(i for i, box in enumerate(self._boxes) if key in box.keys)
        entries = {entry.name.text: entry for entry in self._emptied(self._boxes[index])}
        found = entries.pop(name)
        self._replace(index, list(entries.values()))
        return found

    def newer(self, than: Rank, *, complete: bool) -> list[Entry]:
        """Take the box with the newest, complete or not, if that was written later `than` that."""
        if not self._boxes:
            return []
        newest, index = max(
            (box.newest(complete=complete), index) for index, box in enumerate(self._boxes)
        )
        if newest <= than:
            return []
        box = self._boxes[index]
        del self._boxes[index]
        return self._emptied(box)

    def above(self, order: Order, most: int) -> list[EntryName]:
        """The names of the steady ones of the next steps above `order`; they stay here."""
        found: list[EntryName] = []
        for box in self._boxes:
            self._pace.keep()
            if box.last is not None and box.last > order:
                named = (e.name for e in _unboxed(box) if e.memory.steady and e.name.order > order)
                found = nsmallest(most, (*found, *named), key=lambda name: name.order)
        return found

    def keep(self, names: NameSet) -> None:
        """Forget all that are not among `names`."""
        kept = [self._boxes.popleft() for _ in range(len(self._boxes))]
        for box in kept:
            self._pace.keep()
            if all(names.has(key) for key in box.keys):
                self._boxes.append(box)
            else:
                here = [entry for entry in self._emptied(box) if entry.name.text in names]
                if here:
                    self.put(here)

    def _replace(self, index: int, entries: Sequence[Entry]) -> None:
        del self._boxes[index]
        if entries:
            self.put(entries)
            self._boxes.insert(index, self._boxes.pop())

    def _emptied(self, box: _Box) -> list[Entry]:
        entries = _unboxed(box)
        for entry in entries:
            self._names.discard(entry.name.text)
        self.complete -= box.complete
        return entries


def _boxed(entries: Sequence[Entry]) -> _Box:
    packed = zlib.compress(json.dumps([_row(entry) for entry in entries]).encode(), 1)
    steady = (entry.name.order for entry in entries if entry.memory.steady)
    return _Box(
        packed,
        array("q", (key_of(entry.name.text) for entry in entries)),
        sum(entry.complete for entry in entries),
        _newest(entry for entry in entries if entry.complete),
        _newest(entry for entry in entries if not entry.complete),
        max(steady, default=None),
    )


def _newest(entries: Iterable[Entry]) -> Rank:
    return max((entry.order for entry in entries), default=NONE)


def _unboxed(box: _Box) -> list[Entry]:
    return [_entry(*row) for row in json.loads(zlib.decompress(box.packed))]


def _row(entry: Entry) -> Sequence[object]:
    memory = entry.memory
    doubt = memory.doubt
    return (
        entry.name,
        entry.complete,
        entry.completed,
        entry.size,
        entry.changed,
        entry.written,
        memory.stamp,
        {path: (file.size, file.modified) for path, file in memory.witnesses.items()},
        memory.folders,
        memory.proven,
        None if doubt is None else (doubt.since, doubt.lost),
        memory.steady,
    )


def _entry(name: Any, *row: Any) -> Entry:
    complete, completed, size, changed, written = row[:5]
    stamp, witnesses, folders, proven, doubt, steady = row[5:]
    memory = Memory(
        Stamp(*stamp),
        {path: FileSeen(*file) for path, file in witnesses.items()},
        {path: Stamp(*inner) for path, inner in folders.items()},
        proven,
        None if doubt is None else Doubt(*doubt),
        steady,
    )
    return Entry(EntryName(*name), complete, completed, size, changed, written, memory)
