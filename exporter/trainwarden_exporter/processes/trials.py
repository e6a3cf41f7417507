"""How many trials each worker has ended since it started, by what its logs tell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from trainwarden_exporter.processes.matching import Tree, WorkerKey
from trainwarden_exporter.processes.startlog import name
from trainwarden_exporter.statefile import StateFile

TRIAL = "trial_"
"""What the name of a pattern begins with of which each line is the end of a trial."""

Begun = dict[str, tuple[str, int]]
"""By worker: its oldest process, and how many trials its logs had told of when that was new."""


class Trials:
    """What the oldest process of each worker began with, kept in the file `path`."""

    def __init__(self, path: Path | None) -> None:
        self._file = StateFile[Begun](path, Begun, empty={})

    def adopt(self, predecessor: Self) -> None:
        """Go on with what `predecessor` remembers."""
        self._file.save(predecessor._file.value)

    def since_start(
        self, trees: Mapping[WorkerKey, Tree], told: Mapping[WorkerKey, int | None]
    ) -> Mapping[WorkerKey, int]:
        """Trials since the oldest living process was first seen, of the workers for which it is so.

        `told`: how many their logs have told of until now; None while that is not known.
        """
        begun: Begun = {}
        found: dict[WorkerKey, int] = {}
        for key, total in told.items():
            known = self._file.value.get(name(key))
            living = (root.identity for root in trees[key].roots if root.alive)
            oldest = min(living, key=lambda one: one.start_ticks, default=None)
            if oldest is not None and total is not None:
                process = f"{oldest.pid}/{oldest.start_ticks}"
                # Fewer than then: the logs' own count was lost.
                if known is None or known[0] != process or known[1] > total:
                    known = (process, total)
                found[key] = total - known[1]
            if known is not None:
                begun[name(key)] = known
        self._file.save(begun)
        return found
