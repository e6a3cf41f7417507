"""Has deliveries that come at the same time written down at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainwarden_remediator.alerts import Alert
from trainwarden_remediator.exceptions import JournalError


@dataclass(slots=True)
class _Batch:
    alerts: list[Alert] = field(default_factory=list)
    led: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)
    written: bool = False


class Together:
    """What comes while `write` is at work is written by its next call, all of it in one.

    In a storm each delivery by itself would wait for the disk. `write` is called in a thread.
    """

    def __init__(self, write: Callable[[Sequence[Alert]], None]) -> None:
        self._write = write
        self._writing = asyncio.Lock()
        self._next = _Batch()

    async def hear(self, alerts: Sequence[Alert]) -> None:
        """Return once these are written down. Raises JournalError; they may be delivered again."""
        batch = self._next
        batch.alerts += alerts
        if batch.led:
            await batch.over.wait()
        else:
            await self._lead(batch)
        if not batch.written:
            raise JournalError("what came at the same time could not be written down")

    async def _lead(self, batch: _Batch) -> None:
        """Write for all that come until it is the turn of `batch`."""
        batch.led = True
        try:
            async with self._writing:
                self._next = _Batch()
                await asyncio.to_thread(self._write, batch.alerts)
                batch.written = True
        finally:
            if self._next is batch:  # cancelled before its turn: who came with it may come again
                self._next = _Batch()
            batch.over.set()
