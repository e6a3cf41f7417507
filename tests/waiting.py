"""Waits with a deadline that a loaded machine keeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
DEADLINE_SECONDS = 180.0


def until(true: Callable[[], object], seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until `true` returns something true; fail the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.01)


def connected(ask: Callable[[], T], seconds: float = DEADLINE_SECONDS) -> T:
    """Return the result of `ask`; repeat it while its connection is refused or reset.

    After `seconds` the connection's error is raised. Any other error is raised at once.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except OSError as error:
            # urllib wraps errors of the connection attempt, and raises those of the answer bare
            cause = getattr(error, "reason", error)
            if not isinstance(cause, ConnectionError) or time.monotonic() > deadline:
                raise
        time.sleep(0.05)
