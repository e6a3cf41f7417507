"""Detects from the growth of a log that its writer holds lines back until a block is full. Pure.

Python and C buffer the output of a program in blocks when it goes into a file. Then the log is late
by minutes, and what is in the buffer is lost when the program is killed. C writes blocks of exactly
4096 bytes; Python (TextIOWrapper) writes the whole lines that fit into 8192 bytes.
"""

from __future__ import annotations

from collections import deque

C_BLOCK_BYTES = 4096
PYTHON_BLOCK_BYTES = 8192
PYTHON_SLACK_BYTES = 512
"""Bytes by which a block of Python may be shorter: less than one line."""
MAX_BLOCKS = 4
"""Maximum number of blocks between two observations; more of them match any growth."""
MIN_PAUSE_SECONDS = 2.0
"""Minimum time between two blocks; a log that grows more often is not late."""
MIN_GROWTHS = 4
"""Number of recent growths that must all be of blocks."""


class BlockBuffering:
    """Observes the size of a log."""

    def __init__(self) -> None:
        self._size: int | None = None
        self._grown_at: float | None = None
        self._are_blocks: deque[bool] = deque(maxlen=MIN_GROWTHS)

    @property
    def detected(self) -> bool:
        return len(self._are_blocks) == MIN_GROWTHS and all(self._are_blocks)

    def observe(self, size: int, clock: float) -> None:
        """Records the total size of the log at `clock` (seconds)."""
        before, self._size = self._size, size
        if before is None or size == before:
            return
        if size < before:  # rotated
            self._are_blocks.clear()
        elif self._grown_at is not None:
            paused = clock - self._grown_at >= MIN_PAUSE_SECONDS
            self._are_blocks.append(paused and _is_blocks(size - before))
        self._grown_at = clock


def _is_blocks(growth: int) -> bool:
    """Whether `growth` bytes are a few whole blocks of C or of Python."""
    count = -(-growth // PYTHON_BLOCK_BYTES)
    missing = count * PYTHON_BLOCK_BYTES - growth
    return count <= MAX_BLOCKS and (
        growth % C_BLOCK_BYTES == 0 or missing <= count * PYTHON_SLACK_BYTES
    )
