"""Follows the logs of runs while they are written."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

SHOWN_BYTES = 8192
"""How much of what was printed before is shown."""
CHUNK = 1 << 16
POLL_SECONDS = 0.1


class LogFollower:
    """Reads a log of a run, from its last lines on, also after the log was rotated.

    It begins at the offset `begin` in bytes at the earliest, and with the last `lines` lines.
    """

    def __init__(self, path: Path, begin: int = 0, lines: int = sys.maxsize) -> None:
        self._path = path
        self._begin = begin
        self._lines = lines
        self._descriptor: int | None = None

    def read(self) -> bytes:
        """Returns what was appended since the last call; empty if there is nothing more."""
        with suppress(FileNotFoundError):
            if self._descriptor is None:
                return self._open_at_end()
            if data := os.read(self._descriptor, CHUNK):
                return data
            if os.fstat(self._descriptor).st_ino != self._path.stat().st_ino:
                os.close(self._descriptor)
                self._descriptor = os.open(self._path, os.O_RDONLY)
                return os.read(self._descriptor, CHUNK)
        return b""

    def _open_at_end(self) -> bytes:
        self._descriptor = os.open(self._path, os.O_RDONLY)
        size = os.fstat(self._descriptor).st_size
        begin = self._begin if self._begin <= size else 0  # rotated since
        skipped = max(begin, size - SHOWN_BYTES)
        os.lseek(self._descriptor, skipped, os.SEEK_SET)
        data = os.read(self._descriptor, CHUNK)
        if skipped > begin:
            data = data.partition(b"\n")[2] or data
        lines = data.split(b"\n")
        return b"\n".join(lines[-self._lines - (not lines[-1]) :])


def follow(
    followers: Mapping[str, LogFollower],
    is_over: Callable[[], bool],
    write: Callable[[bytes], object],
) -> None:
    """Passes what is appended to the logs to `write` until `is_over` returns True.

    With several logs, each line begins with the name of its log.
    """
    width = max(map(len, followers))
    rests = dict.fromkeys(followers, b"")
    while True:
        over = is_over()  # asked before the last look, so that it misses nothing
        found = False
        for name, follower in followers.items():
            while data := follower.read():
                found = True
                if len(followers) == 1:
                    write(data)
                    continue
                *lines, rests[name] = (rests[name] + data).split(b"\n")
                write(b"".join(f"{name:<{width}} | ".encode() + line + b"\n" for line in lines))
        if over:
            break
        if not found:
            time.sleep(POLL_SECONDS)
    for name, rest in rests.items():
        if rest:
            write(f"{name:<{width}} | ".encode() + rest + b"\n")
