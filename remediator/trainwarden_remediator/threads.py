"""Threads for what blocks, started beforehand: later there may be none to be had."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

THREADS = 16
"""Enough for all that blocks at once, also while some wait for a disk that hangs."""


def ready_threads(count: int = THREADS) -> ThreadPoolExecutor:
    """An executor whose threads all run already. Raises RuntimeError where they cannot be had."""
    executor = ThreadPoolExecutor(count, thread_name_prefix="call")
    all_there = Barrier(count + 1)
    try:
        for _ in range(count):  # none is idle before all are there, so each call starts another
            executor.submit(all_there.wait)
        all_there.wait()
    except BaseException:
        all_there.abort()  # those that are there would wait for the others for ever
        executor.shutdown(wait=False)
        raise
    return executor
