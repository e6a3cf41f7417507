"""Reads which entries a folder has, however many, and keeps little of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from heapq import heappush, heappushpop
from typing import Protocol

from trainwarden_exporter.entries.disk import Disk
from trainwarden_exporter.entries.names import NameSet
from trainwarden_exporter.entries.naming import EntryName, Naming
from trainwarden_exporter.entries.pace import Pace
from trainwarden_exporter.entries.walking import Stamp, stamp_of

MOST_NEW = 4_000
"""Names that are told of those that are not known, the last ones; the others come later."""

SHARE = 0.01
"""Of all time, for which a folder is read again that seems to be the same: not every file system
keeps the time of a folder."""

LONGEST = 60.0
"""Seconds after which it is read again at any rate: what took so long may have hung."""

STRIDE = 32
"""Names after which is asked whether it is time to rest."""

COARSE = 2.0
"""Seconds by which the time of a folder may be behind."""


class Known(Protocol):
    """The names of the entries that are known."""

    def __contains__(self, name: str) -> bool: ...
    def __len__(self) -> int: ...


class Listing:
    """The names in a folder, read again when something may have changed. For one thread."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        naming: Naming,
        *,
        pace: Pace,
        now: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.names: NameSet | None = None
        """Of all entries; None before the first reading."""
        self.has_lost = False
        """Whether some that are known were not there when it was read just now."""
        self.fresh: list[EntryName] = []
        """Those that are not known and were not there at the reading before, the last first."""
        self.unknown: list[EntryName] = []
        """Others that are not known, the last first."""
        self._disk = disk
        self._path = path
        self._naming = naming
        self._pace = pace
        self._now = now
        self._clock = clock
        self._stamp: Stamp | None = None
        self._began = self._took = self._moment = 0.0
        self._is_cut = False

    def read(self, known: Known) -> NameSet:
        """The names of all entries, of which those are told apart that are known.

        Raises OSError as the disk does.
        """
        stamp = stamp_of(self._disk.status(self._path)) if self._is_costly else None
        if self.names is not None and stamp is not None and self._is_same(stamp, known):
            return self.names
        moment, began = self._now(), self._clock()
        self.names = self._read(known)
        self._stamp, self._moment, self._began = stamp, moment, began
        self._took = self._clock() - began
        return self.names

    @property
    def _is_costly(self) -> bool:
        """Whether it takes so long that it is asked first whether anything is new."""
        return self._clock() - self._began < min(self._took / SHARE, LONGEST)

    def _is_same(self, stamp: Stamp, known: Known) -> bool:
        """Whether nothing came or went, and names that were not known are left to look at."""
        if stamp != self._stamp or stamp.modified > self._moment - COARSE:
            return False
        waiting = [name for name in (*self.fresh, *self.unknown) if name.text not in known]
        self.fresh, self.unknown, self.has_lost = [], waiting, False
        return bool(waiting) or not self._is_cut

    def _read(self, known: Known) -> NameSet:
        names = NameSet()
        fresh, unknown = _Last(MOST_NEW), _Last(MOST_NEW)
        names.fill(self._sorted_out(known, fresh, unknown))
        self._is_cut = fresh.is_cut or unknown.is_cut
        self.fresh, self.unknown = fresh.descending(), unknown.descending()
        return names

    def _sorted_out(self, known: Known, fresh: _Last, unknown: _Last) -> Iterator[str]:
        """The names of all entries; those that are not known also go where they belong."""
        before, seen = self.names, 0
        for number, text in enumerate(self._disk.listed(self._path)):
            if number % STRIDE == 0:
                self._pace.keep()
            if text in known:
                seen += 1
            elif (name := self._naming.parse(text)) is None:
                continue
            elif before is None or text in before:
                unknown.add(name)
            else:
                fresh.add(name)
            yield text
        self.has_lost = seen < len(known)


class _Last:
    """The last of the names that are added."""

    def __init__(self, most: int) -> None:
        self.is_cut = False
        self._most = most
        self._names: list[tuple[tuple[int, str], EntryName]] = []

    def add(self, name: EntryName) -> None:
        if len(self._names) < self._most:
            heappush(self._names, (name.order, name))
        else:
            heappushpop(self._names, (name.order, name))
            self.is_cut = True

    def descending(self) -> list[EntryName]:
        return [name for _, name in sorted(self._names, reverse=True)]
