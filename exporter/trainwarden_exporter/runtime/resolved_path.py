"""Resolves links in paths on a mount that may never answer."""

from __future__ import annotations

import math
import os
import time

from trainwarden_exporter.runtime.blocking_thread import run_with_timeout

SECONDS = 1.0
"""Seconds for which an answer is awaited; a local disk needs a thousandth of one."""

KEPT_SECONDS = 10.0
_MOST_KEPT = 4096

_known: dict[str, tuple[float, str]] = {}
_awaited: set[str] = set()


def resolved_path(path: str) -> str:
    """Returns `path` without links, as of the last KEPT_SECONDS.

    While a mount on the way does not answer: as it was last known, else as given.
    """
    at, known = _known.get(path, (-math.inf, path))
    if path in _awaited or time.monotonic() - at < KEPT_SECONDS:
        return known

    def resolve() -> str:
        real = os.path.realpath(path)
        if len(_known) >= _MOST_KEPT:
            _known.clear()
        _known[path] = (time.monotonic(), real)
        _awaited.discard(path)
        return real

    _awaited.add(path)
    try:
        return run_with_timeout(SECONDS, resolve)
    except TimeoutError:
        return known
    except RuntimeError:  # the host is out of threads
        return resolve()
