"""Writes a small file to learn how well a disk writes, and leaves nothing of it behind."""

from __future__ import annotations

import logging
import math
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

log = logging.getLogger(__name__)

PREFIX = ".trainwarden-probe-"
LEFTOVER_SECONDS = 3600.0
"""Age from which on a file of a probe is what a crash has left; none takes as long."""

_BLOCK = 1 << 20
_FIRST_BYTES = 4096
_FREE_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Measurement:
    """How one file was written."""

    latency: float
    """Seconds until the file was there with its first 4 KiB, and on the disk."""
    bytes_per_second: float
    """Of all that was written after that, the wait for the disk counted."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What the probes of a disk came to so far."""

    measurement: Measurement | None = None
    """Of the last one; None where it failed, or was not made."""
    success: bool | None = None
    """Of the last one; None where so little is free that it was not made."""
    failures: int = 0


class Probe:
    """Measures the disk at `path` at each call, and counts the failures."""

    def __init__(self, path: Path, size: int, *, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._size = size
        self._now = now
        self._probed = Probed()

    def __call__(self) -> Probed:
        """Look once. A disk that fails is no exception, but what was looked for."""
        try:
            remove_leftovers(self._path, older_than=self._now() - LEFTOVER_SECONDS)
            if has_room(self._path, self._size):
                measured = measure(self._path, self._size)
                self._probed = replace(self._probed, measurement=measured, success=True)
            else:
                self._probed = replace(self._probed, measurement=None, success=None)
        except OSError as error:
            if self._probed.success is not False:
                log.warning("disk probe failed", extra={"path": self._path, "error": str(error)})
            failures = self._probed.failures + 1
            self._probed = Probed(measurement=None, success=False, failures=failures)
        return self._probed


def has_room(path: Path, size: int) -> bool:
    """Whether `size` bytes can be written at `path` without bringing it near its end.

    Raises OSError.
    """
    vfs = os.statvfs(path)
    free = vfs.f_bavail * (vfs.f_frsize or vfs.f_bsize)
    return free >= 2 * size and vfs.f_bavail >= _FREE_SHARE * vfs.f_blocks


def measure(
    path: Path,
    size: int,
    *,
    limit: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> Measurement:
    """Write `size` bytes into a new file in the folder `path`, down to the disk, and remove it.

    No more is written once that takes longer than `limit` seconds. Raises OSError.
    """
    file = path / f"{PREFIX}{secrets.token_hex(8)}"
    # what cannot be compressed: some file systems would write next to nothing
    block = memoryview(secrets.token_bytes(_BLOCK))
    began = clock()
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        written = _write(descriptor, block[:_FIRST_BYTES])
        os.fsync(descriptor)
        first = clock()
        total = max(size, 2 * _FIRST_BYTES)
        while written < total and (written == _FIRST_BYTES or clock() - first < limit):
            written += _write(descriptor, block[: total - written])
        os.fsync(descriptor)
        took = clock() - first
        # the run needs the memory for its own files
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        with suppress(OSError):
            file.unlink()
        os.close(descriptor)
    return Measurement(first - began, (written - _FIRST_BYTES) / max(took, 1e-9))


def remove_leftovers(path: Path, *, older_than: float) -> None:
    """Remove the files of probes in the folder `path` that were written before `older_than`.

    By their age, for the program that wrote one may run on another machine. Raises OSError.
    """
    with os.scandir(path) as entries:
        names = [entry for entry in entries if entry.name.startswith(PREFIX)]
    for entry in names:
        with suppress(FileNotFoundError):
            if entry.stat(follow_symlinks=False).st_mtime < older_than:
                Path(entry).unlink()


def _write(descriptor: int, data: memoryview) -> int:
    written = 0
    while written < len(data):
        written += os.write(descriptor, data[written:])
    return written
