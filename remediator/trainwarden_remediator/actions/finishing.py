"""Remembers how what an action has started ended by itself.

Whoever starts a process also reaps it, and before Linux 6.15 nobody else learns its status then: to
the exporter a worker that has finished is gone like one that has crashed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection


class Finishing:
    """Of a target's children, whether the last that was the worker itself ended with status 0.

    A program that starts the worker and ends says nothing about it, nor does one that was told to
    end.
    """

    def __init__(self) -> None:
        self._workers: set[int] = set()
        self._told: set[int] = set()
        self.finished: bool | None = None
        """None while that is not known."""

    def is_known(self, child: subprocess.Popen[bytes]) -> bool:
        """Whether it was seen to be the worker itself."""
        return child.pid in self._workers

    def seen(self, child: subprocess.Popen[bytes], roots: Collection[int]) -> None:
        """These pids are the worker now."""
        if child.pid in roots:
            self._workers.add(child.pid)
            self.finished = None

    def telling_to_end(self, pids: Collection[int]) -> None:
        self._told |= self._workers.intersection(pids)
        self.finished = None

    def reaped(self, child: subprocess.Popen[bytes]) -> None:
        if self.is_known(child) and child.pid not in self._told:
            self.finished = child.returncode == 0
        self._workers.discard(child.pid)
        self._told.discard(child.pid)
