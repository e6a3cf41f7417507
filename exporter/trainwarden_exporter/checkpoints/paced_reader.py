"""Reads files slowly enough that neither the run nor a scrape notices."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from trainwarden_exporter.disk.mounts import read_mount
from trainwarden_exporter.runtime.safe_open import open_regular

READ_SHARE = 0.015
"""Share of the time spent on reading. Of the disk's bandwidth it is a little more, at most 2 %: a
chunk that comes from the memory of the disk takes less time."""
CPU_SHARE = 0.1
"""Share of one CPU core, for checksums and the search for numbers that are not finite."""
MAX_BYTES_PER_SECOND = 64 << 20
"""Limit for pages that are still in memory."""
CHUNK_BYTES = 1 << 20
BUSY_PERCENT = 20.0
"""Share of time, in percent, in which some process waits for I/O: from here on the disk is busy."""
BUSY_FACTOR = 10.0
"""How much slower reading is on a busy disk."""

_PRESSURE = Path("/proc/pressure/io")
_PRESSURE_SECONDS = 5.0
_SCHEDSTAT = Path("/proc/thread-self/schedstat")
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
"""Number of the system call, for which the C library has no function (ioprio_set(2))."""
_IOPRIO_WHO_PROCESS, _IOPRIO_CLASS_IDLE = 1, 3 << 13
_LOWEST_PRIORITY = 19
_MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")


MAX_PAUSE_SECONDS = 60.0
"""Longest pause after one chunk."""


class ReadRate:
    """The rate of all readers of the host together. Thread-safe."""

    unlimited = False

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, pressure: Path = _PRESSURE
    ) -> None:
        self._clock = clock
        self._pressure = pressure
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._busy = False
        self._busy_read_at = -_PRESSURE_SECONDS

    def charge(self, size: int, read_seconds: float, cpu_seconds: float) -> float:
        """Accounts for a chunk that was read; returns for how long its reader has to pause."""
        seconds = max(
            read_seconds / READ_SHARE, cpu_seconds / CPU_SHARE, size / MAX_BYTES_PER_SECOND
        )
        with self._lock:
            now = self._clock()
            if self._is_busy(now):
                seconds *= BUSY_FACTOR
            # One slow read says little about the disk.
            seconds = min(seconds, MAX_PAUSE_SECONDS)
            self._free_at = max(now, self._free_at) + seconds
            return self._free_at - now

    def _is_busy(self, now: float) -> bool:
        if now - self._busy_read_at >= _PRESSURE_SECONDS:
            self._busy_read_at = now
            self._busy = read_io_pressure(self._pressure) >= BUSY_PERCENT
        return self._busy


class UnlimitedRate(ReadRate):
    """For a command that an operator waits for."""

    unlimited = True

    def charge(self, size: int, read_seconds: float, cpu_seconds: float) -> float:
        return 0.0


def read_io_pressure(path: Path) -> float:
    """Returns the percentage of the last ten seconds in which some process waited for I/O.

    0 if the kernel does not show it. Source: Documentation/accounting/psi.rst
    """
    with suppress(OSError, ValueError, IndexError):
        fields = path.read_text().split()
        return float(fields[1].removeprefix("avg10="))
    return 0.0


def seconds_waited_for_cpu(path: Path = _SCHEDSTAT) -> float:
    """Returns how long the calling thread was runnable and no CPU ran it; 0 if not shown.

    Source: Documentation/scheduler/sched-stats.rst
    """
    with suppress(OSError, ValueError, IndexError):
        return int(path.read_text().split()[1]) / 1e9
    return 0.0


def lower_priority() -> None:
    """Gives the calling thread the idle class of I/O and the lowest CPU priority, if possible."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).syscall(
                number, _IOPRIO_WHO_PROCESS, threading.get_native_id(), _IOPRIO_CLASS_IDLE
            )


class PacedFile:
    """An open regular file. Its pages are dropped from memory once they were read."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self.size = size
        self.bytes_read = 0
        self.read_seconds = 0.0

    def read(self, start: int, size: int) -> bytes:
        """Returns up to `size` bytes from `start`. Raises OSError."""
        data = self._read_cached(start, size)
        self.bytes_read += len(data)
        if len(data) == size:
            return data
        began, waited = time.perf_counter(), seconds_waited_for_cpu()
        rest = os.pread(self._descriptor, size - len(data), start + len(data))
        took, waited = time.perf_counter() - began, seconds_waited_for_cpu() - waited
        # On a busy host the thread, of the lowest priority, waits longer for a CPU than for a disk.
        self.read_seconds += max(0.0, took - waited)
        self.bytes_read += len(rest)
        return data + rest

    def _read_cached(self, start: int, size: int) -> bytes:
        """Returns the first bytes that are in memory: of these the disk reads none.

        A fresh checkpoint mostly is, and on a file system without a disk all is. Empty where the
        file system cannot tell (preadv2(2)).
        """
        if self._in_memory:
            return os.pread(self._descriptor, size, start)
        buffer = bytearray(size)
        try:
            count = os.preadv(self._descriptor, [buffer], start, os.RWF_NOWAIT)
        except OSError:
            return b""
        return bytes(memoryview(buffer)[:count])

    @cached_property
    def _in_memory(self) -> bool:
        """Whether the file system has no disk: such a one does not support RWF_NOWAIT."""
        with suppress(OSError):
            mount = read_mount(self._descriptor)
            return mount is not None and mount.fstype in _MEMORY_FILESYSTEMS
        return False

    def drop(self, start: int, size: int) -> None:
        """Lets the kernel drop these pages: a checkpoint is larger than what should be cached."""
        with suppress(OSError):
            os.posix_fadvise(self._descriptor, start, size, os.POSIX_FADV_DONTNEED)


@contextmanager
def open_paced(path: str) -> Iterator[PacedFile]:
    """Opens a regular file by the rule of `open_regular`. Raises OSError, also for others."""
    descriptor = open_regular(path)
    if descriptor is None:
        raise OSError(f"not a regular file: {path}")
    with suppress(OSError):
        # What the kernel reads ahead during a pause costs the reader no time, and so no pause.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    try:
        yield PacedFile(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)
