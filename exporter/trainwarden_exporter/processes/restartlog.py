"""When processes of workers were replaced of late, also as earlier lives of this program saw."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from trainwarden_exporter import starts
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.startlog import name
from trainwarden_exporter.statefile import StateFile

Log = dict[str, list[float]]
"""By worker: when a replacement was seen, in unix seconds. One without any is left out."""


class RestartLog:
    """The recent restarts of workers, kept in the file `path`.

    A count alone would not do: it begins anew with this program, and a loop that lasts longer than
    a life of it would look like a few restarts each time.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = StateFile[Log](path, Log, empty={})
        self._counted: dict[WorkerKey, int] = {}

    def adopt(self, predecessor: Self) -> None:
        """Go on with what `predecessor` remembers."""
        self._counted = predecessor._counted
        self._file.save(predecessor._file.value)

    def note(self, counts: Mapping[WorkerKey, int], now: float) -> None:
        """Add what the counts have grown by, as seen at `now` (unix seconds).

        They count since this program began. Of other workers nothing is kept.
        """
        log: Log = {}
        for key, count in counts.items():
            new = max(0, count - self._counted.get(key, 0))
            known = [*self._file.value.get(name(key), ()), *[now] * new]
            if known and (kept := list(starts.recent(known, now))):
                log[name(key)] = kept
        self._counted = dict(counts)
        self._file.save(log)

    def recent(self, key: WorkerKey) -> int:
        """How many restarts of a worker are remembered."""
        return len(self._file.value.get(name(key), ()))
