"""Stores the states of logs in files, in a thread of its own."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from trainwarden_exporter.logs.follower import LogFollower
from trainwarden_exporter.logs.state import LogState
from trainwarden_exporter.runtime.background_poller import BackgroundPoller
from trainwarden_exporter.runtime.state_file import StateFile

SAVE_SECONDS = 5.0
"""How long a save waits for the disk: nothing else waits for it."""

INTERVAL = 3.0
"""Seconds between two saves; after a crash, lines since the last save are read again."""

LogKey = tuple[str, str]
"""Run and log."""


class LogStateStore:
    """Stores one file per log in `folder`; nothing if that is None.

    Saves in a separate thread, so that a slow or full disk does not delay the reading of logs.
    """

    def __init__(self, folder: Path | None, *, interval: float = INTERVAL) -> None:
        self._folder = folder
        self._followers: tuple[LogFollower, ...] = ()
        self._files: dict[LogKey, StateFile[LogState]] = {}
        self._saved: dict[LogKey, tuple[LogFollower, int]] = {}
        self._saving = Lock()
        self._poller = BackgroundPoller("states of logs", self.save, interval=interval)

    def load(self, run: str, log: str) -> LogState:
        """Returns the last saved state of a log."""
        return self._file((run, log)).value

    def set_followers(self, followers: tuple[LogFollower, ...]) -> None:
        """Saves the states of `followers`, and of no others, from now on."""
        self._followers = followers
        if self._folder is not None and followers:
            self._poller.start()

    def close(self) -> None:
        self._poller.close()

    def save(self) -> None:
        """Saves the states that have changed since the last save."""
        with self._saving:
            for follower in self._followers:
                key, now = (follower.spec.run, follower.spec.name), (follower, follower.changes)
                # Before its first poll it knows none of its files.
                if follower.changes and self._saved.get(key) != now:
                    self._file(key).save(follower.state(), seconds=SAVE_SECONDS)
                    self._saved[key] = now

    def _file(self, key: LogKey) -> StateFile[LogState]:
        file = self._files.get(key)
        if file is None:
            run, log = key
            path = None if self._folder is None else self._folder / "logs" / run / f"{log}.json"
            file = self._files[key] = StateFile(path, LogState, empty=LogState())
        return file
