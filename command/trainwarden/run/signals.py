"""Signals that the wrapper handles."""

from __future__ import annotations

import os
import signal

HANDLED = (
    *(signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP),
    *(signal.SIGWINCH, signal.SIGCONT, signal.SIGUSR1, signal.SIGUSR2),
)
GROUP = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGCONT)
"""Signals that a terminal sends to all processes in its foreground."""
STOPS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
"""Signals with which the user, or the system, ends the command."""


def has_terminal() -> bool:
    """Whether the session of this process has a terminal, whose end SIGHUP reports then."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
