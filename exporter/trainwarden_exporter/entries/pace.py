"""Work in the background that lets a scrape pass."""

from __future__ import annotations

import time
from collections.abc import Callable

SLICE = 0.002
"""Seconds of CPU time for which is worked on end: only one thread of a Python program runs at once,
so that a scrape waits for about so long."""
REST = 2.0
"""Times as long is rested then."""
LONGEST = 0.02
"""Seconds of work for which is rested at most: it may not have been asked for long."""


class Pace:
    """For one thread: rests now and then, by how much CPU time was used since."""

    def __init__(
        self,
        *,
        used: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.hurried = False
        """Whether somebody waits for the work, so that there is no rest."""
        self._used = used
        self._sleep = sleep
        self._began = 0.0

    def keep(self) -> None:
        """Rest, if it is time; to be called often."""
        if self.hurried:
            return
        worked = self._used() - self._began
        if worked >= SLICE:
            self._sleep(REST * min(worked, LONGEST))
            self._began = self._used()
