"""Lowers the OOM score of the remediator, so that the kernel kills other processes first.

Source: proc(5), oom_score_adj. Child processes inherit the score; lowering it requires
CAP_SYS_RESOURCE, raising it is always allowed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)

PROTECTED_SCORE = -900
"""Not -1000, so that the kernel can still kill the process as a last resort."""


class OomScore:
    """The OOM score of this process, lowered if permitted.

    Started workers must not inherit the lowered score: the kernel would spare a leaking worker and
    kill other processes instead.
    """

    def __init__(self, path: Path = Path("/proc/self/oom_score_adj")) -> None:
        self._path = path
        self._own_score = PROTECTED_SCORE
        self._child_score: int | None = None
        self._spawning = 0
        self._lock = threading.Lock()

    def lower(self) -> bool:
        """Lowers the score. Returns whether it is lowered."""
        with self._lock:
            if self._child_score is not None:
                return True
            try:
                found = int(self._path.read_text())
                if found > PROTECTED_SCORE:
                    self._path.write_text(f"{PROTECTED_SCORE}\n")
            except (OSError, ValueError) as error:
                log.info("OOM score not lowered", extra={"error": str(error)})
                return False
            # A low score set by the service manager is not meant for started workers either.
            self._own_score, self._child_score = min(found, PROTECTED_SCORE), max(found, 0)
            return True

    @contextmanager
    def inheritable(self) -> Iterator[None]:
        """Restores the normal score inside the context, for processes that are started there."""
        with self._lock:
            self._spawning += 1
            self._write(self._child_score)
        try:
            yield
        finally:
            with self._lock:
                self._spawning -= 1
                if not self._spawning and self._child_score is not None:
                    self._write(self._own_score)

    def _write(self, score: int | None) -> None:
        if score is not None:
            with suppress(OSError):
                self._path.write_text(f"{score}\n")


PROCESS_SCORE = OomScore()
"""The score of this process."""
