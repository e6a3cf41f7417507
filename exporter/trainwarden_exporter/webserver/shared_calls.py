"""Lets requests that arrive at the same time share one costly result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

SHARED_SECONDS = 0.05
"""Calls within this time of the first share its result."""

T = TypeVar("T")


class SharedCalls(Generic[T]):
    """Shares the results of calls with the same key that begin at about the same time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: dict[Hashable, tuple[float, asyncio.Task[T]]] = {}

    async def call(self, key: Hashable, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Returns the result of `function`, or of a recent call with `key` that still runs."""
        now = self._clock()
        began, running = self._running.get(key, (now, None))
        if running is None or now - began > SHARED_SECONDS:
            running = asyncio.create_task(function())
            self._running[key] = now, running
            running.add_done_callback(lambda done: self._forget(key, done))
        # A disconnecting client must not cancel the call of the others.
        return await asyncio.shield(running)

    def _forget(self, key: Hashable, done: asyncio.Task[T]) -> None:
        if self._running.get(key, (0.0, None))[1] is done:
            del self._running[key]
