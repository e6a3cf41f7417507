"""Calls people, beside the engine and never in its way."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass

from trainwarden_remediator.carrying import Clock
from trainwarden_remediator.exceptions import JournalError, NotDeliveredError
from trainwarden_remediator.notifying.forms import request
from trainwarden_remediator.notifying.messages import Notice, bare, message
from trainwarden_remediator.notifying.models import Notify, Receiver
from trainwarden_remediator.notifying.outbox import Outbox
from trainwarden_remediator.notifying.posting import Post

log = logging.getLogger(__name__)

TURN_SECONDS = 1.0
"""How often it is looked whether there is something to tell."""

GAP_SECONDS = 5.0
"""Least time between two messages to one receiver; what comes meanwhile is told in the next."""

FIRST_WAIT = 5.0
LONGEST_WAIT = 300.0
"""Seconds after which what was not delivered is tried again: at first, and at last."""


@dataclass(slots=True)
class _Line:
    """How it stands with one receiver. `next_at` is on the monotonic clock."""

    next_at: float = 0.0
    wait: float = FIRST_WAIT
    refused: bool = False
    failing: str = ""
    told: tuple[Notice, ...] = ()
    """What has arrived and is not written down as such yet: it must not be sent again."""


class Notifier:
    """Tells each receiver of what the journal holds for it, until it has arrived."""

    def __init__(
        self, notify: Notify, outbox: Outbox, post: Post, *, clock: Clock, mode: str
    ) -> None:
        self._notify = notify
        self._mode = mode
        self._outbox = outbox
        self._post = post
        self._clock = clock
        self._lines: dict[str, _Line] = {}
        self._busy: set[str] = set()
        self._failing = False

    def use(self, notify: Notify, *, mode: str) -> None:
        """Go by another configuration; what waited for an address that was wrong is tried anew."""
        self._notify = notify
        self._mode = mode
        for line in self._lines.values():
            line.next_at = 0.0

    async def run(self) -> None:
        """Look, and tell, for ever."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    await self._turn(group)
                    self._failing = False
                except (JournalError, MemoryError) as error:
                    if not self._failing:
                        said = str(error) or "no memory"
                        log.error("nobody can be called", extra={"error": said})
                    self._failing = True
                await self._clock.sleep(TURN_SECONDS)

    async def _turn(self, group: asyncio.TaskGroup) -> None:
        notify = self._notify
        while await asyncio.to_thread(self._outbox.collect, notify):
            pass
        await asyncio.to_thread(self._outbox.expire, notify)
        for receiver in notify.receivers:
            line = self._lines.setdefault(receiver.name, _Line())
            if receiver.name in self._busy or self._clock.monotonic() < line.next_at:
                continue
            self._busy.add(receiver.name)
            # One that hangs keeps nobody else from being called.
            group.create_task(self._tell(receiver, line), name=f"notify {receiver.name}")

    async def _tell(self, receiver: Receiver, line: _Line) -> None:
        try:
            await self._try(receiver, line)
        except (JournalError, MemoryError) as error:
            line.next_at = self._clock.monotonic() + FIRST_WAIT
            facts = {"receiver": receiver.name, "error": str(error) or "no memory"}
            log.error("message put off", extra=facts)
        finally:
            self._busy.discard(receiver.name)

    async def _try(self, receiver: Receiver, line: _Line) -> None:
        await self._write_down(line)
        notices = await asyncio.to_thread(self._outbox.waiting, receiver.name)
        if not notices:
            return
        told = message(notices, box=box_name(self._notify), mode=self._mode)
        if line.refused:
            told = bare(told)
        try:
            await self._post(receiver, request(receiver.kind, told))
        except NotDeliveredError as error:
            line.next_at = self._clock.monotonic() + max(line.wait, error.after)
            line.wait = min(line.wait * 2, LONGEST_WAIT)
            line.refused = error.refused
            if line.failing != str(error):
                facts = {"receiver": receiver.name, "error": str(error), "waiting": len(notices)}
                log.error("message not delivered", extra=facts)
            line.failing = str(error)
            await asyncio.to_thread(self._outbox.failed, receiver.name)
            return
        line.next_at = self._clock.monotonic() + GAP_SECONDS
        line.wait, line.refused, line.failing, line.told = FIRST_WAIT, False, "", notices
        log.info("message sent", extra={"receiver": receiver.name, "things": len(notices)})
        await self._write_down(line)

    async def _write_down(self, line: _Line) -> None:
        if line.told:
            await asyncio.to_thread(self._outbox.settle, line.told, "sent")
            line.told = ()


def box_name(notify: Notify) -> str:
    """What messages call this box."""
    return notify.box or socket.gethostname()
