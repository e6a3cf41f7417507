"""How likely the kernel is to kill the remediator for want of memory: it should go last.

Facts: proc(5), oom_score_adj; it is inherited by fork(2) and kept over execve(2), and to lower it
takes CAP_SYS_RESOURCE, while to raise it is everybody's right.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)

LAST = -900
"""Not -1000: where there is nothing else left to kill, the kernel must be able to."""


class OomScore:
    """The score of this process, lowered where that is allowed.

    What it starts must not inherit that: a worker that leaks would be spared, and others killed in
    its place.
    """

    def __init__(self, path: Path = Path("/proc/self/oom_score_adj")) -> None:
        self._path = path
        self._own = LAST
        self._ordinary: int | None = None
        self._starting = 0
        self._turn = threading.Lock()

    def lower(self) -> bool:
        """Lower it. Returns whether it is lowered now."""
        with self._turn:
            if self._ordinary is not None:
                return True
            try:
                found = int(self._path.read_text())
                if found > LAST:
                    self._path.write_text(f"{LAST}\n")
            except (OSError, ValueError) as error:
                log.info("may be killed for want of memory", extra={"error": str(error)})
                return False
            # What a service manager has given this program alone is not for what it starts either.
            self._own, self._ordinary = min(found, LAST), max(found, 0)
            return True

    @contextmanager
    def ordinary(self) -> Iterator[None]:
        """While inside, it is what others have: what is started now inherits that."""
        with self._turn:
            self._starting += 1
            self._write(self._ordinary)
        try:
            yield
        finally:
            with self._turn:
                self._starting -= 1
                if not self._starting and self._ordinary is not None:
                    self._write(self._own)

    def _write(self, score: int | None) -> None:
        if score is not None:
            with suppress(OSError):
                self._path.write_text(f"{score}\n")


OWN = OomScore()
"""That of this process."""
