"""Signals that the wrapper handles, and what a hang-up is: the end of the terminal, or a signal."""

from __future__ import annotations

import os
import signal
import time

HANDLED = (
    *(signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP),
    *(signal.SIGWINCH, signal.SIGCONT, signal.SIGUSR1, signal.SIGUSR2),
)
GROUP = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGCONT)
"""Signals that a terminal sends to all processes in its foreground."""
STOPS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
"""Signals with which the user, or the system, ends the command."""
HANG_UP_SECONDS = 1.0
"""A shell that ends sends SIGHUP to its jobs before its terminal is gone."""


class HangUp:
    """Tells whether a SIGHUP came with the end of the terminal, or was sent to this process."""

    def __init__(self) -> None:
        self._attended = _has_terminal()
        self.decided_at: float | None = None
        """When a SIGHUP no longer counts as the end of the terminal (monotonic clock), or None."""

    def notice(self) -> None:
        """Records a SIGHUP."""
        self.decided_at = time.monotonic() + (HANG_UP_SECONDS if self._attended else 0.0)

    def is_end_of_terminal(self) -> bool | None:
        """Returns None without a SIGHUP, or while that is not known."""
        if self.decided_at is None:
            return None
        ended = self._attended and not _has_terminal()
        if not ended and time.monotonic() < self.decided_at:
            return None
        self.decided_at = None
        return ended


def _has_terminal() -> bool:
    """Whether the session of this process has a terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
