"""Clocks, and a timer for how long a condition has held."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from trainwarden_exporter.processes.procfs import read_text
from trainwarden_exporter.processes.start_times import boot_seconds

JUMP_SECONDS = 60.0
"""A smaller change of the clock is an ordinary correction."""


class ConditionTimer:
    """Accumulates how long a condition has held, tolerating missed observations.

    The time between two observations counts for `max_gap` seconds at most, because the condition
    was not observed while the program or the host was suspended.
    """

    def __init__(self, *, max_gap: float) -> None:
        self._max_gap = max_gap
        self._last_update: float | None = None
        self.seconds = 0.0

    def update(self, active: bool, now: float) -> float:
        """Records an observation at `now` (monotonic seconds).

        Returns the seconds for which the condition has held.
        """
        if not active:
            self._last_update, self.seconds = None, 0.0
            return 0.0
        if self._last_update is not None:
            self.seconds += min(max(now - self._last_update, 0.0), self._max_gap)
        self._last_update = now
        return self.seconds


class ClockWatch:
    """Detects that the time of day was set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.now() - clock.since_boot()

    def jump(self) -> float:
        """Returns by how many seconds the clock was set since the last call, or 0."""
        offset = self._clock.now() - self._clock.since_boot()
        change, self._offset = offset - self._offset, offset
        return 0.0 if abs(change) < JUMP_SECONDS else change


def boot_id() -> str:
    """Returns the identifier of this boot, or "" if it is unknown."""
    return (read_text("/proc/sys/kernel/random/boot_id") or "").strip()


class Clock(Protocol):
    """A source of time; tests use a fake."""

    def now(self) -> float:
        """Returns the time of day in Unix seconds."""

    def monotonic(self) -> float:
        """Returns seconds that are not affected by setting the clock."""

    def since_boot(self) -> float:
        """Returns the same, but including the time for which the host was suspended."""

    def boot(self) -> str:
        """Returns the identifier of this boot, or "" if it is unknown."""

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds`."""


class WallClock:
    """The clock of the system."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def since_boot(self) -> float:
        return boot_seconds()

    def boot(self) -> str:
        return boot_id()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
