"""Keeps the state of logs in files, beside the threads that read them."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from trainwarden_exporter.logs.follower import Follower
from trainwarden_exporter.logs.state import LogState
from trainwarden_exporter.statefile import StateFile
from trainwarden_exporter.watching import Watch

INTERVAL = 3.0
"""Seconds between two saves; what is read in between is read again after a crash."""

LogKey = tuple[str, str]
"""Run and log."""


class Keeper:
    """One file for each log below `folder`; nothing outlives this program where that is None.

    Saving has a thread of its own: a slow or full disk keeps no log from being read.
    """

    def __init__(self, folder: Path | None, *, interval: float = INTERVAL) -> None:
        self._folder = folder
        self._followers: tuple[Follower, ...] = ()
        self._files: dict[LogKey, StateFile[LogState]] = {}
        self._saved: dict[LogKey, tuple[Follower, int]] = {}
        self._saving = Lock()
        self._watch = Watch("states of logs", self.save, interval=interval)

    def read(self, run: str, log: str) -> LogState:
        """What was saved of a log last."""
        return self._file((run, log)).value

    def keep(self, followers: tuple[Follower, ...]) -> None:
        """Save the state of these from now on, and of no others."""
        self._followers = followers
        if self._folder is not None and followers:
            self._watch.start()

    def close(self) -> None:
        self._watch.close()

    def save(self) -> None:
        """Save what has changed since it was saved last."""
        with self._saving:
            for follower in self._followers:
                key, now = (follower.spec.run, follower.spec.name), (follower, follower.changes)
                if self._saved.get(key) != now:
                    self._file(key).save(follower.state())
                    self._saved[key] = now

    def _file(self, key: LogKey) -> StateFile[LogState]:
        file = self._files.get(key)
        if file is None:
            run, log = key
            path = None if self._folder is None else self._folder / "logs" / run / f"{log}.json"
            file = self._files[key] = StateFile(path, LogState, empty=LogState())
        return file
