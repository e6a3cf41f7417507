"""Follows the logs of runs while they are written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

SHOWN_BYTES = 8192
"""How much of what was printed before is shown."""
CHUNK = 1 << 16
POLL_SECONDS = 0.1


class LogFollower:
    """Reads a log of a run, from its last lines on, also after the log was rotated."""

    def __init__(self, path: Path) -> None:
        self._path = path
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
        skipped = os.fstat(self._descriptor).st_size - SHOWN_BYTES
        if skipped <= 0:
            return os.read(self._descriptor, CHUNK)
        os.lseek(self._descriptor, skipped, os.SEEK_SET)
        data = os.read(self._descriptor, CHUNK)
        return data.partition(b"\n")[2] or data


def follow(
    logs: Mapping[str, Path], is_over: Callable[[], bool], write: Callable[[bytes], object]
) -> None:
    """Passes what is appended to `logs` to `write` until `is_over` returns True.

    With several logs, each line begins with the name of its log.
    """
    followers = {name: LogFollower(path) for name, path in logs.items()}
    width = max(map(len, logs))
    rests = dict.fromkeys(logs, b"")
    while True:
        over = is_over()  # asked before the last look, so that it misses nothing
        found = False
        for name, follower in followers.items():
            while data := follower.read():
                found = True
                if len(logs) == 1:
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
