"""Measures the write speed of a disk with a temporary file."""

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

FILE_PREFIX = ".trainwarden-probe-"
LEFTOVER_SECONDS = 3600.0
"""Age of a probe file after which it is a leftover of a crash; no probe takes as long."""

_BLOCK = 1 << 20
_FIRST_BYTES = 4096
_FREE_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of writing one file."""

    latency: float
    """Seconds until the file existed with its first 4 KiB synced."""
    bytes_per_second: float
    """Speed of the rest, including sync."""


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """Results of the probes of a disk."""

    measurement: Measurement | None = None
    """Result of the last probe; None if it failed or was skipped."""
    success: bool | None = None
    """Success of the last probe; None if too little space was free."""
    failures: int = 0


class WriteProbe:
    """Measures the disk at `path` at each call, and counts failures."""

    def __init__(self, path: Path, size: int, *, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._size = size
        self._now = now
        self._results = ProbeResults()

    def __call__(self) -> ProbeResults:
        """Runs one probe. A failing disk is a result, not an exception."""
        try:
            remove_leftovers(self._path, older_than=self._now() - LEFTOVER_SECONDS)
            if has_free_space(self._path, self._size):
                measured = measure(self._path, self._size)
                self._results = replace(self._results, measurement=measured, success=True)
            else:
                self._results = replace(self._results, measurement=None, success=None)
        except OSError as error:
            if self._results.success is not False:
                log.warning("disk probe failed", extra={"path": self._path, "error": str(error)})
            failures = self._results.failures + 1
            self._results = ProbeResults(measurement=None, success=False, failures=failures)
        return self._results


def has_free_space(path: Path, size: int) -> bool:
    """Whether `size` bytes can be written at `path` with enough space left.

    Raises OSError.
    """
    vfs = os.statvfs(path)
    free = vfs.f_bavail * (vfs.f_frsize or vfs.f_bsize)
    return free >= 2 * size and vfs.f_bavail >= _FREE_SHARE * vfs.f_blocks


def measure(
    path: Path, size: int, *, limit: float = math.inf, clock: Callable[[], float] = time.monotonic
) -> Measurement:
    """Writes and syncs a new file of `size` bytes in the folder `path`, and removes it.

    Stops after `limit` seconds. Raises OSError.
    """
    file = path / f"{FILE_PREFIX}{secrets.token_hex(8)}"
    # incompressible data: some file systems would write almost nothing otherwise
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
        # leave the page cache to the run
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        with suppress(OSError):
            file.unlink()
        os.close(descriptor)
    return Measurement(first - began, (written - _FIRST_BYTES) / max(took, 1e-9))


def remove_leftovers(path: Path, *, older_than: float) -> None:
    """Removes probe files in the folder `path` that were written before `older_than`.

    Uses the age, because the writer may run on another machine. Raises OSError.
    """
    with os.scandir(path) as entries:
        names = [entry for entry in entries if entry.name.startswith(FILE_PREFIX)]
    for entry in names:
        with suppress(FileNotFoundError):
            if entry.stat(follow_symlinks=False).st_mtime < older_than:
                Path(entry).unlink()


def _write(descriptor: int, data: memoryview) -> int:
    written = 0
    while written < len(data):
        written += os.write(descriptor, data[written:])
    return written
