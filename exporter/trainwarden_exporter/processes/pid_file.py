"""Reads pid files and checks that the pid was not reused."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainwarden_exporter.processes.procfs import Process
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.runtime.bounded_calls import bounded_call
from trainwarden_exporter.runtime.safe_open import open_regular

_CLOCK_TOLERANCE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class PidFile:
    """Content of a pid file: the pid, and when the file was written (Unix seconds)."""

    pid: int
    written: float
    writers: frozenset[int] | None = frozenset({0})
    """The accounts (uids) that can write or replace the file; None: more than two accounts can."""

    def is_trusted_for(self, uid: int) -> bool:
        """Whether only root, this program's account and the account `uid` can write the file.

        Any other account could name a process of `uid`, which would then be terminated.
        """
        return self.writers is not None and self.writers <= {0, os.geteuid(), uid}

    def matches(self, process: Process) -> bool:
        """Whether `process` can be the process that the file names.

        A pid file is written while its process runs, so a process that started after the write has
        only reused the pid. The tolerance covers coarse clocks (starts are counted in ticks, file
        times in jiffies, on some file systems in two seconds).
        """
        return (
            process.pid == self.pid
            and start_timestamp(process.identity) <= self.written + _CLOCK_TOLERANCE_SECONDS
        )


def parse_pid(text: str) -> int | None:
    """Returns the pid at the start of `text` and ignores the rest; None without a pid."""
    first = text.split(maxsplit=1)[:1]
    pid = int(first[0]) if first and first[0].isascii() and first[0].isdecimal() else 0
    return pid or None


def read_pid_file(path: Path) -> PidFile | None:
    """Reads a pid file; None if it does not exist or contains no pid.

    Raises OSError if it exists and is unreadable; TimeoutError while its mount does not answer.
    """
    return bounded_call(path, partial(_read, path))


def _read(path: Path) -> PidFile | None:
    try:
        # a FIFO at this path must not block the scrape, and a link must not name another file
        descriptor = open_regular(path)
    except FileNotFoundError:
        return None
    if descriptor is None:
        return None
    try:
        status = os.fstat(descriptor)
        pid = parse_pid(os.read(descriptor, 64).decode("utf-8", "replace"))
        folder = Path(f"/proc/self/fd/{descriptor}").readlink().parent.stat()
    finally:
        os.close(descriptor)
    if pid is None:
        return None
    # in a folder with the sticky bit only the two owners can replace a file
    is_open = _is_open(status) or (_is_open(folder) and not folder.st_mode & stat.S_ISVTX)
    writers = None if is_open else frozenset({status.st_uid, folder.st_uid})
    return PidFile(pid, status.st_mtime, writers)


def _is_open(status: os.stat_result) -> bool:
    """Whether accounts besides the owner can write; many accounts have a group of their number."""
    shared = status.st_gid not in (0, status.st_uid)
    return bool(status.st_mode & (stat.S_IWOTH | (stat.S_IWGRP if shared else 0)))
