"""De-duplicates lines that occur in several logs of a run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import Lock

from trainwarden_exporter.logs.state import DeduplicationCounts

MAX_LINES = 10_000
"""Number of different lines to remember; a copy that comes later counts again."""


@dataclass(slots=True)
class _LineCount:
    occurrences: dict[tuple[str, str], int] = field(default_factory=dict)
    """Number of occurrences by log and location."""
    counted: dict[str, int] = field(default_factory=dict)
    """Number of counts by log."""


class LineDeduplicator:
    """De-duplicates the lines of logs that repeat each other. Thread-safe.

    A line counts as often as it occurs in the location with the most occurrences, for the log in
    which it came first, so that the sum over all logs is correct in any reading order.
    """

    def __init__(self, most: int = MAX_LINES) -> None:
        self._most = most
        self._lines: OrderedDict[str, _LineCount] = OrderedDict()
        self._lock = Lock()

    def add(self, log: str, location: str, kind: str, text: str) -> int:
        """Adds a line, and returns how often to count it."""
        digest = blake2b(f"{kind}\0{text}".encode(errors="replace"), digest_size=8).hexdigest()
        with self._lock:
            line = self._line(digest)
            line.occurrences[log, location] = line.occurrences.get((log, location), 0) + 1
            missing = max(line.occurrences.values()) - sum(line.counted.values())
            if missing > 0:
                line.counted[log] = line.counted.get(log, 0) + missing
            return max(0, missing)

    def state_of(self, log: str) -> DeduplicationCounts:
        """Returns the state of `log` for `restore`."""
        with self._lock:
            parts = {}
            for digest, line in self._lines.items():
                occurrences = {
                    location: n for (owner, location), n in line.occurrences.items() if owner == log
                }
                if occurrences:
                    parts[digest] = (line.counted.get(log, 0), occurrences)
            return parts

    def restore(self, log: str, part: DeduplicationCounts) -> None:
        """Replaces the state of `log`."""
        with self._lock:
            for line in self._lines.values():
                line.counted.pop(log, None)
                for key in [key for key in line.occurrences if key[0] == log]:
                    del line.occurrences[key]
            for digest, (counted, occurrences) in part.items():
                line = self._line(digest)
                line.counted[log] = counted
                line.occurrences |= {(log, location): n for location, n in occurrences.items()}

    def _line(self, digest: str) -> _LineCount:
        line = self._lines.get(digest)
        if line is None:
            line = self._lines[digest] = _LineCount()
            if len(self._lines) > self._most:
                self._lines.popitem(last=False)
        self._lines.move_to_end(digest)
        return line


class DeduplicationGroups:
    """The `LineDeduplicator` of each group of each run."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, LineDeduplicator] = {}

    def group(self, run: str, name: str) -> LineDeduplicator:
        return self._groups.setdefault((run, name), LineDeduplicator())
