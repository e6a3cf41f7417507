"""Finds the processes that write batches or weights, and their accounts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from trainwarden_exporter.processes.config import RunWorkers, workers_by_key
from trainwarden_exporter.processes.matching import Matcher
from trainwarden_exporter.processes.procfs import PROC
from trainwarden_exporter.rollouts.write_access import Account, read_account

WRITER_ROLES: Mapping[str, tuple[str, ...]] = {
    "batches": ("orchestrator", "rollout"),
    "weights": ("trainer",),
}
"""Roles of the writers; the first with a running process counts."""

INTERVAL = 15.0
"""Seconds for which an account is cached."""


class WriterAccounts:
    """Accounts of the writers, including ended ones. For one thread."""

    def __init__(
        self,
        runs: Sequence[RunWorkers],
        *,
        root: Path = PROC,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        workers = workers_by_key(runs)
        self._roles = {key: worker.role for key, worker in workers.items()}
        self._wanted = set(self._roles.values()) & {
            role for some in WRITER_ROLES.values() for role in some
        }
        self._matcher = Matcher({key: worker.match for key, worker in workers.items()}, root=root)
        self._root = root
        self._clock = clock
        self._valid_until = 0.0
        self._accounts: dict[tuple[str, str], Account] = {}

    def account(self, run: str, carries: Literal["batches", "weights"]) -> Account | None:
        """Returns the account of the writer for `run`; None before it was first observed.

        Raises CollectError if processes cannot be listed.
        """
        if self._wanted and self._clock() >= self._valid_until:
            self._refresh()
            self._valid_until = self._clock() + INTERVAL
        found = (self._accounts.get((run, role)) for role in WRITER_ROLES[carries])
        return next((account for account in found if account is not None), None)

    def _refresh(self) -> None:
        for key, tree in self._matcher.find().items():
            role = self._roles[key]
            if role not in self._wanted:
                continue
            for process in tree.roots:
                account = read_account(process.pid, self._root) if process.alive else None
                if account is not None:
                    self._accounts[key.run, role] = account
                    break
