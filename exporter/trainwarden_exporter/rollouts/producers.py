"""Finds the processes that write batches or weights, and who they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from trainwarden_exporter.processes.matching import Matcher, WorkerKey
from trainwarden_exporter.processes.procfs import PROC
from trainwarden_exporter.rollouts.writing import Account, read_account
from trainwarden_exporter.runs import RunConfig

ROLES: Mapping[str, tuple[str, ...]] = {
    "batches": ("orchestrator", "rollout"),
    "weights": ("trainer",),
}
"""The roles of those who write; of several, the first that runs counts."""

INTERVAL = 15.0
"""Seconds for which an account is taken to be the same."""


class Producers:
    """The accounts of those who write, also of those that have ended since. For one thread."""

    def __init__(
        self,
        runs: Sequence[RunConfig],
        *,
        root: Path = PROC,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._roles = {
            WorkerKey(run.name, worker.name): worker.role for run in runs for worker in run.workers
        }
        self._wanted = set(self._roles.values()) & {
            role for some in ROLES.values() for role in some
        }
        self._matcher = Matcher(
            {WorkerKey(run.name, one.name): one.match for run in runs for one in run.workers},
            root=root,
        )
        self._root = root
        self._clock = clock
        self._until = 0.0
        self._accounts: dict[tuple[str, str], Account] = {}

    def account(self, run: str, carries: Literal["batches", "weights"]) -> Account | None:
        """Of whoever writes those of `run`; None while such a worker was never seen.

        Raises CollectError when the processes cannot be listed.
        """
        if self._wanted and self._clock() >= self._until:
            self._look()
            self._until = self._clock() + INTERVAL
        found = (self._accounts.get((run, role)) for role in ROLES[carries])
        return next((account for account in found if account is not None), None)

    def _look(self) -> None:
        for key, tree in self._matcher.find().items():
            role = self._roles[key]
            if role not in self._wanted:
                continue
            for process in tree.roots:
                account = read_account(process.pid, self._root) if process.alive else None
                if account is not None:
                    self._accounts[key.run, role] = account
                    break
