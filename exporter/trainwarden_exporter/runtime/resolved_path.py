"""Resolves links in paths on a mount that may never answer."""

from __future__ import annotations

import math
import os
import time

from trainwarden_exporter.runtime.bounded_calls import bounded_call

KEPT_SECONDS = 10.0
_MOST_KEPT = 4096

_known: dict[str, tuple[float, str]] = {}


def resolved_path(path: str) -> str:
    """Returns `path` without links, as of the last KEPT_SECONDS.

    While a mount on the way does not answer: as it was last known, else as given.
    """
    at, known = _known.get(path, (-math.inf, path))
    if time.monotonic() - at < KEPT_SECONDS:
        return known
    try:
        real = bounded_call(path, lambda: os.path.realpath(path))
    except TimeoutError:
        return known
    if len(_known) >= _MOST_KEPT:
        _known.clear()
    _known[path] = (time.monotonic(), real)
    return real
