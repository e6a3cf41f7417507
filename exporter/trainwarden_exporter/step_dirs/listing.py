"""Lists the entries of a folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Protocol

from trainwarden_exporter.step_dirs.filesystem import FileSystem
from trainwarden_exporter.step_dirs.names import NameParser, StepDirName
from trainwarden_exporter.step_dirs.throttle import Throttle
from trainwarden_exporter.step_dirs.tree_walk import Stamp, stamp_of

MAX_ENTRIES = 20_000
"""Maximum number of entries of one folder, those of the highest steps: they take up to 28 MiB.
Other names do not count."""

MAX_TIME_SHARE = 0.01
"""Share of time spent on reading an apparently unchanged folder again: not every file system
updates the time of a folder."""

MAX_REUSE_SECONDS = 60.0
"""Seconds after which a listing is repeated in any case: a long duration may have been a hang."""

MAX_OTHERS = 3
"""Maximum number of names kept that are none of entries."""

NAMES_PER_PAUSE = 32
"""Number of names between two checks for a pause."""

MTIME_RESOLUTION_SECONDS = 2.0
"""Seconds by which the modification time of a folder may lag."""


class KnownNames(Protocol):
    """The names of the known entries."""

    def __contains__(self, name: str) -> bool: ...
    def __len__(self) -> int: ...


class FolderListing:
    """The names in a folder, read again when they may have changed. For one thread."""

    def __init__(
        self,
        filesystem: FileSystem,
        path: str,
        name_parser: NameParser,
        *,
        throttle: Throttle,
        now: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.names: set[str] | None = None
        """Names of the entries of the highest steps; None before the first listing."""
        self.count = 0
        """Number of all entries."""
        self.has_missing = False
        """Whether known entries were missing in the last listing."""
        self.fresh: list[StepDirName] = []
        """Unknown names that were not in the previous listing, last first."""
        self.unknown: list[StepDirName] = []
        """Other unknown names, last first."""
        self.others: tuple[str, ...] = ()
        """The first names that are none of an entry, without hidden ones."""
        self._filesystem = filesystem
        self._path = path
        self._name_parser = name_parser
        self._throttle = throttle
        self._now = now
        self._clock = clock
        self._stamp: Stamp | None = None
        self._read_started = self._read_seconds = self._read_at = 0.0

    def read(self, known: KnownNames) -> set[str]:
        """Returns the names of the entries of the highest steps, and separates the unknown names.

        Raises OSError.
        """
        stamp = stamp_of(self._filesystem.status(self._path)) if self._is_costly else None
        if self.names is not None and stamp is not None and self._is_same(stamp):
            waiting = [name for name in (*self.fresh, *self.unknown) if name.text not in known]
            self.fresh, self.unknown, self.has_missing = [], waiting, False
            return self.names
        read_at, started = self._now(), self._clock()
        self.names = self._read(known)
        self._stamp, self._read_at, self._read_started = stamp, read_at, started
        self._read_seconds = self._clock() - started
        return self.names

    @property
    def _is_costly(self) -> bool:
        """Whether a listing is so slow that a check for changes pays off."""
        return self._clock() - self._read_started < min(
            self._read_seconds / MAX_TIME_SHARE, MAX_REUSE_SECONDS
        )

    def _is_same(self, stamp: Stamp) -> bool:
        """Whether the folder is unchanged."""
        return stamp == self._stamp and stamp.modified <= self._read_at - MTIME_RESOLUTION_SECONDS

    def _read(self, known: KnownNames) -> set[str]:
        found, others, count = list[StepDirName](), list[str](), 0
        lowest: tuple[int, str] | None = None
        for number, text in enumerate(self._filesystem.iter_names(self._path)):
            if number % NAMES_PER_PAUSE == 0:
                self._throttle.pause_if_due()
            if (name := self._name_parser.parse(text)) is None:
                if not text.startswith("."):
                    others = nsmallest(MAX_OTHERS, (*others, text))
                continue
            count += 1
            if lowest is not None and name.sort_key < lowest:
                continue
            found.append(name)
            if len(found) == 2 * MAX_ENTRIES:
                found = _highest_first(found)[:MAX_ENTRIES]
                lowest = found[-1].sort_key
        found = _highest_first(found)[:MAX_ENTRIES]
        new = [name for name in found if name.text not in known]
        before = self.names
        self.fresh = [name for name in new if before is not None and name.text not in before]
        self.unknown = [name for name in new if before is None or name.text in before]
        self.has_missing = len(found) - len(new) < len(known)
        self.count, self.others = count, tuple(others)
        return {name.text for name in found}


def _highest_first(names: Iterable[StepDirName]) -> list[StepDirName]:
    return sorted(names, key=lambda name: name.sort_key, reverse=True)
