"""When a command that has ended is started again without a request."""

from __future__ import annotations

import os
import time

from trainwarden.run.announcement import Announcement

NEVER, ON_FAILURE, ON_REQUEST = "never", "on-failure", "on-request"
POLICIES = (NEVER, ON_FAILURE, ON_REQUEST)

STOP_SECONDS = 60.0
"""An end within this time after a signal of the user is the result of it."""
STEADY_SECONDS = 600.0
"""A command that ran for this long did not fail because of its last start."""
CLOCK_ERROR_SECONDS = 0.1
MAX_FAILURES = 5
MAX_DELAY_SECONDS = 60.0


class FailureCount:
    """Counts failures in a row, each soon after its start."""

    def __init__(self) -> None:
        self._count = 0

    def next_delay(self, lasted: float) -> float | None:
        """Returns the seconds to wait before the next start; None if there were too many."""
        self._count = 1 if lasted >= STEADY_SECONDS else self._count + 1
        if self._count > MAX_FAILURES:
            return None
        return min(float(1 << (self._count - 1)), MAX_DELAY_SECONDS)


def end_state(status: int, *, since_stop: float | None, finishes: bool) -> str:
    """Returns the state after an end with the wait status `status`.

    `since_stop` is the time in seconds since the user's last signal, None without one. `finishes`
    is whether exit status 0 is the end of the run; of a server it is a failure.
    """
    if since_stop is not None and since_stop < STOP_SECONDS:
        return "stopped"
    return "finished" if status == 0 and finishes else "failed"


def describe_restart(announcement: Announcement) -> str:
    """Returns the line of the log between two processes; empty before the first.

    The exporter dates what was printed before by it. The start of a process is known to a few
    hundredths of a second only, and must not seem to be earlier.
    """
    ended, status = announcement.content["ended_at"], announcement.content["exit_status"]
    if ended is None or status is None:
        return ""
    moment = ended - CLOCK_ERROR_SECONDS
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    ended_at = f"{seconds}.{int(moment % 1 * 1000):03d}Z"
    return f"trainwarden: {ended_at} {describe_end(announcement, status)}; starts again"


def describe_end(announcement: Announcement, status: int) -> str:
    """Returns how the process ended, as a line for the log and the terminal."""
    how = (
        f"ended by signal {os.WTERMSIG(status)}"
        if os.WIFSIGNALED(status)
        else f"ended with exit status {os.WEXITSTATUS(status)}"
    )
    return f"process {announcement.content['pid']} {how}"
