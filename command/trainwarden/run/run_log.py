"""The log of a run: bounded, and never a reason for the run to fail."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

LOG_BYTES = 64 << 20
"""Size at which the log is renamed to `.1`, which replaces the one before."""
TAIL_BYTES = 8192
LAST_LINES = 10
MAX_LINE = 300

_CONTROL = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.|[\x00-\x08\x0b-\x1f\x7f]"
)


def without_control(data: bytes) -> bytes:
    """Returns `data` without control sequences, as of colours, and control characters."""
    return _CONTROL.sub(b"", data)


class RunLog:
    """Appends what a run prints to `path`, and keeps the end of it."""

    def __init__(self, path: Path, *, limit: int = LOG_BYTES) -> None:
        self._path = path
        self._limit = limit
        self._descriptor: int | None = None
        self._size = 0
        self.tail = b""
        """What was written last, at most TAIL_BYTES."""
        self._written_at: float | None = None

    @property
    def silent_for(self) -> float | None:
        """Seconds since the last write; None before the first."""
        return None if self._written_at is None else time.monotonic() - self._written_at

    def write(self, data: bytes) -> None:
        """Appends `data`. While the disk is full, the data is dropped."""
        self._written_at = time.monotonic()
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        try:
            if self._descriptor is None:
                self._open()
            elif self._size >= self._limit:
                os.close(self._descriptor)
                self._descriptor = None
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
                self._open()
            self._append(data)
        except OSError:
            return

    def reopen(self) -> None:
        """Begins another file: that at the path was removed."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self.write(b"trainwarden: what was printed before was removed\n")

    def begin_attempt(self, line: str) -> None:
        """Forgets the last lines: another process of the run writes from now on, after `line`."""
        if line:
            end = b"\n" if self.tail and not self.tail.endswith(b"\n") else b""
            self.write(end + f"{line}\n".encode())
        self.tail = b""

    def last_lines(self) -> list[str]:
        """Returns the last lines as they were shown: control sequences and redrawn text removed."""
        lines = []
        for line in self.tail.replace(b"\r\n", b"\n").split(b"\n"):
            shown = [part for part in line.split(b"\r") if part.strip()][-1:]
            text = without_control(shown[0]).decode("utf-8", "replace") if shown else ""
            if text.strip():
                lines.append(text[:MAX_LINE])
        return lines[-LAST_LINES:]

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._descriptor is not None:
            written = os.write(self._descriptor, view)
            self._size += written
            view = view[written:]
