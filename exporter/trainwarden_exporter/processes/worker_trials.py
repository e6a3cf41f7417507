"""Trials that each worker has ended since its start, according to its logs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from trainwarden_exporter.processes.matching import ProcessTree, WorkerKey
from trainwarden_exporter.processes.start_history import worker_id
from trainwarden_exporter.runtime.state_file import StateFile

TRIAL_PREFIX = "trial_"
"""Prefix of patterns whose lines each report the end of a trial."""

STORED_TRIAL = "journaled"
"""Pattern whose lines each report a finished trial in the storage of a search, which the search
still has when it is started again."""

STORED_STUDY, UNSTORED_STUDY = "stored_study", "unstored_study"
"""Patterns whose lines report that the trials of a search are in a storage, or only in memory."""

TrialBaselines = dict[str, tuple[str, int]]
"""Oldest process of each worker, and the logged trials when it was first observed."""


class TrialCounter:
    """Trial counts at the start of the oldest process of each worker, stored in the file `path`."""

    def __init__(self, path: Path | None) -> None:
        self._file = StateFile[TrialBaselines](path, TrialBaselines, empty={})

    def take_over_from(self, predecessor: Self) -> None:
        self._file.save(predecessor._file.value)

    def since_start(
        self, trees: Mapping[WorkerKey, ProcessTree], logged: Mapping[WorkerKey, int | None]
    ) -> Mapping[WorkerKey, int]:
        """Returns the trials since the oldest running process was first observed, where known.

        `logged` is the number of trials in the logs; None while unknown.
        """
        baselines: TrialBaselines = {}
        found: dict[WorkerKey, int] = {}
        for key, total in logged.items():
            known = self._file.value.get(worker_id(key))
            living = (root.identity for root in trees[key].roots if root.alive)
            oldest = min(living, key=lambda one: one.start_ticks, default=None)
            if oldest is not None and total is not None:
                process = f"{oldest.pid}/{oldest.start_ticks}"
                # Fewer than before: the logs' counter was lost.
                if known is None or known[0] != process or known[1] > total:
                    known = (process, total)
                found[key] = total - known[1]
            if known is not None:
                baselines[worker_id(key)] = known
        self._file.save(baselines)
        return found
