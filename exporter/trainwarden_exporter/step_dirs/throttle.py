"""Throttles background work in favour of scrapes."""

from __future__ import annotations

import time
from collections.abc import Callable

SLICE_SECONDS = 0.002
"""Seconds of CPU time per slice: only one Python thread runs at a time, so a scrape waits for
about that long."""
REST_FACTOR = 2.0
"""Multiple of the slice for which the thread then pauses."""
MAX_COUNTED_SECONDS = 0.02
"""Maximum seconds of work counted for a pause."""


class Throttle:
    """Pauses its thread according to the CPU time used since the last pause. For one thread."""

    def __init__(
        self,
        *,
        used: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.disabled = False
        """Whether a caller waits for the work, so that there are no pauses."""
        self._used = used
        self._sleep = sleep
        self._resumed_at = 0.0

    def pause_if_due(self) -> None:
        """Pauses if due; to be called often."""
        if self.disabled:
            return
        worked = self._used() - self._resumed_at
        if worked >= SLICE_SECONDS:
            self._sleep(REST_FACTOR * min(worked, MAX_COUNTED_SECONDS))
            self._resumed_at = self._used()
