"""Reads pid files, and tells whether the process that has the pid is the one that was meant."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.processes.procfs import Process, start_timestamp

_SLACK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class PidFile:
    """What a pid file said: the pid, and when that was written (unix seconds)."""

    pid: int
    written: float

    def means(self, process: Process) -> bool:
        """Whether `process` may be the one the file was written about.

        Who writes down a pid does so while that process runs, so a process that started after the
        writing has only inherited the number. The slack is for coarse clocks (a start is counted in
        ticks, a file's time in jiffies, on some file systems in two seconds).
        """
        return (
            process.pid == self.pid
            and start_timestamp(process.identity) <= self.written + _SLACK_SECONDS
        )


def parse_pid(text: str) -> int | None:
    """The pid that opens `text` (what follows, such as a port, is ignored), None if none does."""
    first = text.split(maxsplit=1)[:1]
    pid = int(first[0]) if first and first[0].isascii() and first[0].isdecimal() else 0
    return pid or None


def read_pid_file(path: Path) -> PidFile | None:
    """What the file says; None while it is absent or says no pid.

    Raises OSError when it is there and may not be read.
    """
    try:
        # a FIFO in its place must not hold up the scrape
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(descriptor)
        content = os.read(descriptor, 64) if stat.S_ISREG(status.st_mode) else b""
    finally:
        os.close(descriptor)
    pid = parse_pid(content.decode("utf-8", "replace"))
    return None if pid is None else PidFile(pid, status.st_mtime)
