"""A clock that a test advances, and threads that run their work at once."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from tests.remediator.samples import NOW

from trainwarden_exporter.runtime.blocking_thread import SerialThread
from trainwarden_remediator.runtime.clock import boot_id

T = TypeVar("T")


class FakeClock:
    """Time that stands still until somebody advances it."""

    def __init__(self, now: float = NOW) -> None:
        self._now = now
        self._set = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now - self._set

    def since_boot(self) -> float:
        return self.monotonic()

    def boot(self) -> str:
        return boot_id()

    def set_forward(self, seconds: float) -> None:
        """Set the time of day, and nothing else."""
        self._now += seconds
        self._set += seconds
        self._sleepers = [(at + seconds, *rest) for at, *rest in self._sleepers]  # type: ignore[misc]

    def __call__(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken

    async def settle(self) -> None:
        """Let everything go on that does not wait for time."""
        ready = vars(asyncio.get_running_loop())["_ready"]
        while True:
            await asyncio.sleep(0)
            if not ready:
                return

    async def advance(self, seconds: float) -> None:
        """Wake everybody whose time comes within `seconds`, in order."""
        end = self.monotonic() + seconds  # the time of day may be set meanwhile
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end + self._set:
            at, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                self._now = max(self._now, at)
                woken.set_result(None)
                await self.settle()
        self._now = end + self._set

    def pass_by(self, seconds: float) -> None:
        """Let time pass without waking anybody: something took that long."""
        self._now += seconds


class InlineExecutor(ThreadPoolExecutor):
    """Runs what is meant for a thread at once, so that a test decides what happens when."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - it is the caller's to judge
            future.set_exception(error)
        return future


class InlineThread(SerialThread):
    """A lane without a thread of its own: what it is to run, it runs at once."""

    def __init__(self, name: str) -> None:
        del name

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(function())
        except Exception as error:  # noqa: BLE001 - it is the caller's to judge
            future.set_exception(error)
        return future

    def close(self) -> None:
        pass
