"""Memory and threads that are set aside for operation under memory shortage.

Sources: mlockall(2), getrlimit(2); MCL_ONFAULT exists since Linux 4.4.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

log = logging.getLogger(__name__)

_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4

_CAP_IPC_LOCK = 14


class MemoryReserve:
    """Memory that stays allocated until it is needed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._memory: mmap.mmap | None = None

    def allocate(self) -> bool:
        """Allocates the reserve and touches each page. Returns whether it is allocated."""
        if self._memory is not None or self._size == 0:
            return True
        try:
            memory = mmap.mmap(-1, self._size)
        except (OSError, ValueError) as error:
            log.warning("memory reserve not allocated", extra={"error": str(error)})
            return False
        for offset in range(0, self._size, mmap.PAGESIZE):
            memory[offset] = 1  # the kernel allocates a page at the first write
        self._memory = memory
        return True

    def release(self) -> None:
        """Frees the reserve, for use by this process."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None


def lock_memory(
    lock: Callable[[int], int] | None = None, *, limit: int | None = None, privileged: bool = False
) -> bool:
    """Locks the memory of this process against swapping. Returns whether it is locked.

    Only without a limit on locked memory: future allocations are locked too and would fail at the
    limit. Child processes do not inherit the lock (execve(2)).
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


THREADS = 16
"""Enough for all concurrent blocking calls, even if some wait for a disk that hangs."""


def start_thread_pool() -> ThreadPoolExecutor:
    """Returns an executor with all threads started. Raises RuntimeError if that fails."""
    executor = ThreadPoolExecutor(THREADS, thread_name_prefix="call")
    all_started = Barrier(THREADS + 1)
    try:
        for _ in range(THREADS):  # no thread is idle before all have started: each call starts one
            executor.submit(all_started.wait)
        all_started.wait()
    except BaseException:
        all_started.abort()  # the started threads would wait forever
        executor.shutdown(wait=False)
        raise
    return executor
