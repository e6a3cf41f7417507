"""Gives back what only the start of the program needed, and keeps its threads to one heap.

What each is worth is told in MiB of resident memory, after 100 scrapes with everything switched on
(bench/everything.py), on CPython 3.11 with glibc.
"""

from __future__ import annotations

import ctypes
import gc
import linecache

_M_ARENA_MAX = -8  # of malloc.h, see mallopt(3)


def settle() -> None:
    """Do all of it; to be called once all is imported, and before the first thread starts."""
    _share_one_heap()
    linecache.clearcache()  # 0.5: our sources, kept since pydantic looked up what fields are for
    gc.freeze()  # code and classes stay for good: no collection need look at them again


def _share_one_heap() -> None:
    """Let all threads allocate from one heap (1.0); of a libc without mallopt, nothing.

    glibc gives threads heaps of their own, so that they do not wait for each other: up to eight for
    each core, and what one has once needed stays with it. Ours take turns anyway, in the
    interpreter, and would rather use what another has given back.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
