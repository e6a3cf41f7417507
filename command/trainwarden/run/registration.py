"""By what other programs find and reach a run: its announcement and its socket."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from trainwarden.run.announcement import Announcement
from trainwarden.run.control import Client, ControlSocket

CHECK_SECONDS = 10.0
"""Time between two checks whether the announcement still is there."""


class Registration:
    """Serves the socket of a run, and renews both where they were removed."""

    def __init__(self, announcement: Announcement) -> None:
        self._announcement = announcement
        self._socket: ControlSocket | None = None
        self.check_at = time.monotonic() + CHECK_SECONDS

    def listen(self) -> None:
        self.close()  # of a folder that was removed
        with suppress(OSError):  # the run itself needs no socket
            self._socket = ControlSocket(self._announcement.files.socket)

    def descriptors(self) -> tuple[int, ...]:
        """Returns the descriptors to poll."""
        return () if self._socket is None else (self._socket.fileno(), *self._socket.clients)

    def serve(self, fd: int) -> tuple[Client, dict[str, Any]] | None:
        """Accepts a client, or returns its request once that is complete."""
        if self._socket is None:
            return None
        if fd in self._socket.clients:
            return self._socket.read(fd)
        self._socket.accept()
        return None

    def renew(self) -> bool:
        """Announces the run again if a check is due; returns whether its files were removed."""
        if (now := time.monotonic()) < self.check_at:
            return False
        self.check_at = now + CHECK_SECONDS
        if not self._announcement.restore():
            return False
        self.listen()
        return True

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
