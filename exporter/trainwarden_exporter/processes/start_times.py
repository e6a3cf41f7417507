"""When processes started, in Unix seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from trainwarden_exporter.processes.procfs_parser import TICKS_PER_SECOND, Identity

_STEPPED_SECONDS = 0.5


def boot_seconds() -> float:
    """Returns seconds since boot including sleep: the clock of start times."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class BootTime:
    """The boot time in Unix seconds; stable, changes only when the clock is set."""

    def __init__(
        self, clock: Callable[[], float] = time.time, since_boot: Callable[[], float] = boot_seconds
    ) -> None:
        self._clock = clock
        self._since_boot = since_boot
        self._last = -math.inf

    def __call__(self) -> float:
        now = self._clock() - self._since_boot()
        if abs(now - self._last) > _STEPPED_SECONDS:
            self._last = now
        return self._last


_boot_time = BootTime()


def start_timestamp(identity: Identity) -> float:
    """Returns the start time in Unix seconds; the same number at every call (see BootTime)."""
    return round(_boot_time() + identity.start_ticks / TICKS_PER_SECOND, 2)
