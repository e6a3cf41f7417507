"""Memory to read logs into, of which many threads share a little."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, LifoQueue

KEPT = 2
"""Buffers that are kept: one is read into while the other is searched."""

PATIENCE = 5.0
"""Seconds after which a buffer that does not come back is replaced: its thread hangs."""


class Buffers:
    """Lends buffers of `size` bytes, about as many as are in use at once.

    Each thread with a buffer of its own would keep far more memory than they ever need together,
    because what a thread has given back stays with it.
    """

    def __init__(self, size: int, *, patience: float = PATIENCE) -> None:
        self.size = size
        self._patience = patience
        # the one given back last is lent first: the other stays empty while one thread alone reads
        self._spare: LifoQueue[bytearray] = LifoQueue()
        for _ in range(KEPT):
            self._spare.put(bytearray())

    @contextmanager
    def lend(self, size: int) -> Iterator[bytearray]:
        """A buffer of at least `size` bytes; what is in it is of no meaning."""
        try:
            buffer = self._spare.get(timeout=self._patience)
        except Empty:
            buffer = bytearray()
        try:
            if len(buffer) < size:
                buffer = bytearray(max(size, self.size))
            yield buffer
        finally:
            if self._spare.qsize() < KEPT:
                self._spare.put(buffer if len(buffer) == self.size else bytearray())
