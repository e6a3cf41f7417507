"""Calls to a file system that may never answer."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from os import PathLike
from threading import Condition
from typing import TypeVar

from trainwarden_exporter.exceptions import NoThreadError
from trainwarden_exporter.runtime.blocking_thread import run_with_timeout

T = TypeVar("T")

SECONDS = 1.0
"""Seconds for which an answer is awaited; a local disk needs a thousandth of one."""

HURRIED_SECONDS = 0.05
"""The same while another answer is overdue: a hundred files may be on one mount."""

_running: dict[str, float] = {}
"""When each call began (monotonic seconds)."""
_changed = Condition()


def bounded_call(
    path: str | PathLike[str], function: Callable[[], T], *, seconds: float | None = None
) -> T:
    """Returns the result of `function`, which asks the file system for what is at `path`.

    Raises TimeoutError, an OSError with the path, if there is no answer within `seconds` (SECONDS
    if None), and at once while an earlier call for `path` is overdue: a dead mount then occupies
    one thread for each path, not one for each call. A later answer is discarded.
    """
    path = str(path)
    with _changed:
        began, oldest = _running.get(path), min(_running.values(), default=time.monotonic())
        patience = SECONDS if time.monotonic() - oldest < SECONDS else HURRIED_SECONDS
        patience = patience if seconds is None else seconds
        if began is not None and time.monotonic() - began >= SECONDS:
            raise _no_answer(path)
        if not _changed.wait_for(lambda: path not in _running, patience):
            raise _no_answer(path)
        _running[path] = time.monotonic()

    def ask() -> T:
        try:
            return function()
        finally:
            with _changed:
                del _running[path]
                _changed.notify_all()

    try:
        return run_with_timeout(patience, ask)
    except TimeoutError:
        raise _no_answer(path) from None
    except NoThreadError:  # observe a host that is out of threads all the same
        return ask()


def _no_answer(path: str) -> OSError:
    return OSError(errno.ETIMEDOUT, "the disk or mount does not answer", path)
