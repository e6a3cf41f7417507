"""The system call in which a thread waits, and the memory of its process; see proc(5)."""

from __future__ import annotations

import os
import platform
from typing import NamedTuple

from trainwarden_exporter.processes.procfs import read_text

READ, POLL, SELECT, EPOLL, FUTEX, CLOCK_NANOSLEEP = {
    "x86_64": ((0,), (7, 271), (23, 270), (232, 281, 441), (202,), (230,)),
    "aarch64": ((63,), (73,), (72,), (22, 441), (98,), (115,)),
}.get(platform.machine(), ((),) * 6)
"""The numbers of system calls and of their variants."""

_OF_ALL = {441: 3, 449: 3, 455: 4}
_TIMEOUTS = {
    # futex, poll, ppoll, select, pselect6, epoll_wait, epoll_pwait, nanosleep, clock_nanosleep,
    # rt_sigtimedwait, semtimedop; epoll_pwait2, futex_waitv, futex_wait
    "x86_64": {202: 3, 7: 2, 271: 2, 23: 4, 270: 4, 232: 3, 281: 3, 35: 0, 230: 2, 128: 2, 220: 3}
    | _OF_ALL,
    "aarch64": {98: 3, 73: 2, 72: 4, 22: 3, 101: 0, 115: 2, 137: 2, 192: 3} | _OF_ALL,
}.get(platform.machine())
"""The position of the timeout among the arguments of a system call, by its number."""

_NO_TIMEOUT = (0, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
_ARGUMENTS = 6
_LARGEST_FILE_NUMBER = 1 << 20


class SystemCall(NamedTuple):
    number: int
    arguments: tuple[int, ...]

    @property
    def file_number(self) -> int | None:
        """The first argument if it can be a file descriptor."""
        first = self.arguments[0]
        return first if first < _LARGEST_FILE_NUMBER else None

    @property
    def is_endless(self) -> bool:
        """Whether it has no timeout; False if that is not known."""
        if _TIMEOUTS is None:
            return False
        position = _TIMEOUTS.get(self.number)
        return position is None or self.arguments[position] in _NO_TIMEOUT


def read_call(folder: str) -> SystemCall | None:
    """Returns the system call of a process or a thread by its folder in /proc.

    None if it is in none, or if that is not readable.
    """
    number, *values = (read_text(f"{folder}/syscall") or "").split() or [""]
    if not number.isdigit() or len(values) < _ARGUMENTS:
        return None
    return SystemCall(int(number), tuple(int(one, 16) for one in values[:_ARGUMENTS]))


def read_memory(folder: str, address: int, size: int) -> bytes | None:
    """Returns up to `size` bytes at an address of a process; None if they are not readable."""
    try:
        file = os.open(f"{folder}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.pread(file, size, address)
    except (OSError, OverflowError):
        return None
    finally:
        os.close(file)
