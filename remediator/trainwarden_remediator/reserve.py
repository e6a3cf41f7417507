"""Keeps ready what the local brake needs where nothing is to be had any more.

Facts: mlockall(2), getrlimit(2); MCL_ONFAULT is there since Linux 4.4.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import resource
from collections.abc import Callable

log = logging.getLogger(__name__)

_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_CAP_IPC_LOCK = 14


class Reserve:
    """Memory that is held, page by page, until it is needed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: mmap.mmap | None = None

    @property
    def held(self) -> bool:
        return self._held is not None

    def take(self) -> bool:
        """Hold it, so that it is really there. Returns whether it could be had."""
        if self._held is not None or self._size == 0:
            return True
        try:
            held = mmap.mmap(-1, self._size)
        except (OSError, ValueError) as error:
            log.warning("no memory to set aside", extra={"error": str(error)})
            return False
        for offset in range(0, self._size, mmap.PAGESIZE):
            held[offset] = 1  # a page that nobody has written to is not there yet
        self._held = held
        return True

    def release(self) -> None:
        """Give it back to whoever asks next: this process, most likely, which is about to act."""
        if self._held is not None:
            self._held.close()
            self._held = None


def stay_in_memory(
    lock: Callable[[int], int] | None = None, *, limit: int | None = None, privileged: bool = False
) -> bool:
    """Keep what this process uses from being swapped or dropped. Returns whether that was allowed.

    Only where nothing limits it: under a limit, with all that comes later locked too, the process
    could get no more memory than that. What it starts is not locked (execve(2) ends it).
    """
    if limit is None:
        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        privileged = _has_capability(_CAP_IPC_LOCK)
    if limit != resource.RLIM_INFINITY and not privileged:
        log.info("memory is not locked: RLIMIT_MEMLOCK is not infinite")
        return False
    result = (lock or _mlockall)(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT)
    if result != 0:
        log.info("memory is not locked", extra={"error": os.strerror(ctypes.get_errno())})
    return result == 0


def _mlockall(flags: int) -> int:
    call = ctypes.CDLL(None, use_errno=True).mlockall
    call.argtypes, call.restype = [ctypes.c_int], ctypes.c_int
    answer: int = call(flags)
    return answer


def _has_capability(number: int) -> bool:
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:  # noqa: PTH123 - one line of it
            line = next(line for line in status if line.startswith("CapEff:"))
    except (OSError, StopIteration):
        return False
    return bool(int(line.split()[1], 16) >> number & 1)
