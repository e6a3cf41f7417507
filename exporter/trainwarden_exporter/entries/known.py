"""The entries of a folder that are known: the newest in the open, all others packed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainwarden_exporter.entries.judging import Entry
from trainwarden_exporter.entries.names import NameSet
from trainwarden_exporter.entries.naming import EntryName
from trainwarden_exporter.entries.pace import Pace
from trainwarden_exporter.entries.reading import KEPT, Reading, newest_of
from trainwarden_exporter.entries.shelf import BOX, NONE, Shelf

OPEN = 128
"""Of the complete entries, and of the others, so many of the newest are kept in the open."""

PILE = 8 * BOX
"""Entries that lie in the open beside them before they are put away."""


class Known:
    """All that is known of the entries of one folder. For one thread."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._open: dict[str, Entry] = {}
        self._shelf = Shelf(pace)
        self._turn: deque[str] = deque()
        self._boxes_in_turn = 0

    def __len__(self) -> int:
        return len(self._open) + len(self._shelf)

    def __contains__(self, name: str) -> bool:
        return name in self._open or name in self._shelf

    def get(self, name: str) -> Entry | None:
        """The entry of that name; from then on it is in the open."""
        entry = self._open.get(name)
        if entry is None and (entry := self._shelf.take(name)) is not None:
            self._open[name] = entry
        return entry

    def put(self, entry: Entry) -> None:
        """Know it as it is now; it was asked for with `get`."""
        self._open[entry.name.text] = entry
        if len(self._open) >= 2 * OPEN + PILE:
            self._put_away()

    def drop(self, name: str) -> None:
        """Know no more of it; it was asked for with `get`."""
        self._open.pop(name, None)

    def keep(self, names: NameSet) -> None:
        """Forget all that are not among `names`."""
        for gone in [name for name in self._open if name not in names]:
            del self._open[gone]
        self._shelf.keep(names)

    def ranked(self) -> Sequence[Entry]:
        """Those in the open, newest first; the newest are among them."""
        return newest_of(self._open.values(), len(self._open))

    def above(self, name: EntryName, most: int) -> list[EntryName]:
        """The steady ones of the next steps above that of `name`, the lowest first."""
        steady = [entry.name for entry in self._open.values() if entry.memory.steady]
        higher = [one for one in steady if one.order > name.order]
        higher += self._shelf.above(name.order, most)
        return sorted(higher, key=lambda one: one.order)[:most]

    def in_turn(self, most: int) -> Iterator[EntryName]:
        """So many at most: by and by all have their turn."""
        has_begun = False
        for _ in range(most):
            while not self._turn and self._boxes_in_turn:
                self._boxes_in_turn -= 1
                if len(self._open) >= 2 * OPEN + PILE:  # none of them is in turn
                    self._put_away()
                opened = {entry.name.text: entry for entry in self._shelf.first()}
                self._open |= opened
                self._turn.extend(opened)
            if not self._turn and not has_begun:
                has_begun = True
                self._boxes_in_turn = self._shelf.boxes
                self._turn.extend(self._open)
            if self._turn and (entry := self._open.get(self._turn.popleft())):
                yield entry.name

    def reading(self, names: int) -> Reading:
        """What is known of a folder with so many names. The files are kept of what is told."""
        complete = self._newest(complete=True)
        incomplete = self._newest(complete=False)
        told = {entry.name.text for entry in (*complete, *incomplete)}
        for name, entry in self._open.items():
            if entry.files is not None and name not in told:
                self._open[name] = replace(entry, files=None)
        count = self._shelf.complete + sum(entry.complete for entry in self._open.values())
        return Reading(complete, incomplete, count, len(self) - count, names - len(self))

    def _newest(self, *, complete: bool) -> tuple[Entry, ...]:
        while True:
            found = newest_of(one for one in self._open.values() if one.complete is complete)
            oldest = found[-1].order if len(found) == KEPT else NONE
            newer = self._shelf.newer(oldest, complete=complete)
            if not newer:
                return found
            self._open |= {entry.name.text: entry for entry in newer}

    def _put_away(self) -> None:
        entries = self._open.values()
        newest = {
            entry.name.text
            for complete in (True, False)
            for entry in newest_of((one for one in entries if one.complete is complete), OPEN)
        }
        old = sorted((one for one in entries if one.name.text not in newest), key=_order)
        for first in range(0, len(old) - BOX + 1, BOX):
            box = old[first : first + BOX]
            self._shelf.put(box)
            for entry in box:
                del self._open[entry.name.text]
            self._pace.keep()


def _order(entry: Entry) -> tuple[float, tuple[int, str]]:
    return entry.order
