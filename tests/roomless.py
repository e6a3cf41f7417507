"""Programs for which there is no room beyond so many threads."""

from __future__ import annotations


def with_room_for(threads: int) -> str:
    """The lines of a Python program after which there is room for the stacks of so many threads.

    By the kernel's own limit, which binds root as well. In one heap, because others would take of
    that room, more or less of it as it happens. What the program needs it has to import before.
    """
    return f"""
import ctypes, resource, threading
ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX
stack = 1 << 30
threading.stack_size(stack)
pages = int(open("/proc/self/statm").read().split()[0])
room = pages * resource.getpagesize() + {threads} * stack + stack // 2
resource.setrlimit(resource.RLIMIT_AS, (room, room))
"""
