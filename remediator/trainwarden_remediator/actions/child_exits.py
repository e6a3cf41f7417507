"""Tracks how the processes that the remediator started have ended."""

from __future__ import annotations

import subprocess
from collections.abc import Collection


class ChildExits:
    """Tracks whether the last child process that was the worker itself exited with status 0.

    Ignores launchers that start the worker and exit, and children that the remediator terminated.
    """

    def __init__(self) -> None:
        self._workers: set[int] = set()
        self._terminated: set[int] = set()
        self._last_exited = 0
        self.worker_finished: bool | None = None
        """None while unknown."""

    def is_worker(self, child: subprocess.Popen[bytes]) -> bool:
        """Whether a child was observed to be the worker itself."""
        return child.pid in self._workers

    def observe_roots(self, child: subprocess.Popen[bytes], roots: Collection[int]) -> None:
        """Notes the observed root pids of the worker."""
        if child.pid in roots:
            self._workers.add(child.pid)
            self.worker_finished = None

    def observe_others(self, roots: Collection[int]) -> None:
        """Notes the observed root pids of the worker while none of the children runs.

        A worker that something else has started may fail: the exit of ours says nothing about it.
        """
        if set(roots) - {self._last_exited}:
            self.worker_finished = None

    def expect_exit(self, pids: Collection[int]) -> None:
        self._terminated |= self._workers.intersection(pids)
        self.worker_finished = None

    def record_exit(self, child: subprocess.Popen[bytes]) -> None:
        if self.is_worker(child) and child.pid not in self._terminated:
            self.worker_finished = child.returncode == 0
            self._last_exited = child.pid
        self._workers.discard(child.pid)
        self._terminated.discard(child.pid)
