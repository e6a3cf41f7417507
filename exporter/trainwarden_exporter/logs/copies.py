"""Lines that stand in several logs of a run, and still happened once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import Lock

from trainwarden_exporter.logs.state import CopyCounts

MOST_LINES = 10_000
"""Different lines that are remembered; after so many others, a copy counts again."""


@dataclass(slots=True)
class _Line:
    stood: dict[tuple[str, str], int] = field(default_factory=dict)
    """By log and place: how often."""
    counted: dict[str, int] = field(default_factory=dict)
    """By log: how often it was counted for it."""


class Copies:
    """The lines of logs that repeat each other. May be used by several threads.

    A line happened as often as it stands in the place where it stands most often. It is counted for
    the log that came with it first, so that of all logs together the count is right, in whatever
    order they are read.
    """

    def __init__(self, most: int = MOST_LINES) -> None:
        self._most = most
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._lock = Lock()

    def add(self, log: str, place: str, kind: str, text: str) -> int:
        """Another line `text`, of a `kind`, stands at `place` of `log`: how often to count it."""
        digest = blake2b(f"{kind}\0{text}".encode(errors="replace"), digest_size=8).hexdigest()
        with self._lock:
            line = self._line(digest)
            line.stood[log, place] = line.stood.get((log, place), 0) + 1
            missing = max(line.stood.values()) - sum(line.counted.values())
            if missing > 0:
                line.counted[log] = line.counted.get(log, 0) + missing
            return max(0, missing)

    def part(self, log: str) -> CopyCounts:
        """What is known of `log`, for `restore`."""
        with self._lock:
            parts = {}
            for digest, line in self._lines.items():
                stood = {place: n for (whose, place), n in line.stood.items() if whose == log}
                if stood:
                    parts[digest] = (line.counted.get(log, 0), stood)
            return parts

    def restore(self, log: str, part: CopyCounts) -> None:
        """Put what is known of `log` in place of what was."""
        with self._lock:
            for line in self._lines.values():
                line.counted.pop(log, None)
                for key in [key for key in line.stood if key[0] == log]:
                    del line.stood[key]
            for digest, (counted, stood) in part.items():
                line = self._line(digest)
                line.counted[log] = counted
                line.stood |= {(log, place): n for place, n in stood.items()}

    def _line(self, digest: str) -> _Line:
        line = self._lines.get(digest)
        if line is None:
            line = self._lines[digest] = _Line()
            if len(self._lines) > self._most:
                self._lines.popitem(last=False)
        self._lines.move_to_end(digest)
        return line


class CopyGroups:
    """The `Copies` of each word of each run: one for all the logs that bear it."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, Copies] = {}

    def group(self, run: str, word: str) -> Copies:
        return self._groups.setdefault((run, word), Copies())
