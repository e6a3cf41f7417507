"""Whose command lines a page or a report shows: those of the accounts of the runs."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from pathlib import Path

from trainwarden_exporter.processes.procfs import PROC, Process, read_process, read_uid


class RunAccounts:
    """The accounts (uids) of the runs: those in the configuration, and those of found workers.

    They are remembered: a leftover of a run often stays while no worker runs.
    """

    def __init__(self, users: Iterable[str | None] = (), root: Path = PROC) -> None:
        """`users`: the accounts in the configuration, by name or number."""
        self._root = root
        self._known = frozenset(map(find_uid, users)) - {None}

    def add_workers(self, processes: Iterable[Process]) -> None:
        """Adds the accounts of `processes` of workers.

        That of a root alone is not enough: sudo and su start a worker as another account.
        """
        self._known |= {self._read_uid(one) for one in processes} - {None}

    def add(self, other: RunAccounts) -> None:
        self._known |= other._known

    def __contains__(self, uid: int | None) -> bool:
        """Whether `uid` is known; that of this program counts while none is."""
        return uid in (self._known or {os.geteuid()})

    def _read_uid(self, process: Process) -> int | None:
        uid = read_uid(process.pid, self._root)
        now = read_process(process.pid, self._root)
        # another account may have the pid of a process that has ended
        return uid if now is not None and now.identity == process.identity else None


def find_uid(user: str | None) -> int | None:
    """Returns the uid of an account given by name or number; None without one, or if unknown."""
    if user is None or user.isdecimal():
        return None if user is None else int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
