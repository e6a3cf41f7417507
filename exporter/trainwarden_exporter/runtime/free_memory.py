"""Returns memory that the C library holds free to the kernel."""

from __future__ import annotations

import ctypes


def release_free_memory() -> None:
    """Returns the free memory of all heaps (malloc_trim(3)); without glibc, does not do anything.

    glibc itself returns only the end of its main heap.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
