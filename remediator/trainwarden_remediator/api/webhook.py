"""The webhook endpoint; batches concurrent deliveries into one journal transaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from trainwarden_remediator.alertmanager.webhook_payload import WATCHDOG, Alert, parse_notification
from trainwarden_remediator.api.middleware import (
    refuse_without_credential,
    with_memory_error_response,
)
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.exceptions import JournalError, MalformedWebhookError


@dataclass(slots=True)
class _Batch:
    alerts: list[Alert] = field(default_factory=list)
    has_leader: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)
    written: bool = False


class WriteBatcher:
    """Batches concurrent deliveries into one call of `write`.

    Deliveries that arrive during a call are written by the next one, so that in an alert storm
    they do not wait for one disk write each. `write` is called in a thread.
    """

    def __init__(self, write: Callable[[Sequence[Alert]], None]) -> None:
        self._write = write
        self._writing = asyncio.Lock()
        self._next = _Batch()

    async def write(self, alerts: Sequence[Alert]) -> None:
        """Returns once `alerts` are journaled. Raises JournalError; they may be sent again."""
        batch = self._next
        batch.alerts += alerts
        if batch.has_leader:
            await batch.done.wait()
        else:
            await self._lead(batch)
        if not batch.written:
            raise JournalError("the batch of concurrent deliveries could not be written")

    async def _lead(self, batch: _Batch) -> None:
        """Writes `batch`, with all deliveries that join it until the previous write ends."""
        batch.has_leader = True
        try:
            async with self._writing:
                self._next = _Batch()
                await asyncio.to_thread(self._write, batch.alerts)
                batch.written = True
        finally:
            if self._next is batch:  # cancelled before its turn: the others are sent again
                self._next = _Batch()
            batch.done.set()


log = logging.getLogger(__name__)

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Bytes of the longest delivery: a group of well over 10,000 alerts. aiohttp's default of 1 MiB
would reject every delivery of an alert storm."""

INLINE_PARSE_BYTES = 64 * 1024
"""Bytes up to which parsing a delivery takes less time than handing it to a thread."""

BODY_TIMEOUT_SECONDS = 20.0
"""Seconds that a request body may take to arrive."""

REMEDIATOR = web.AppKey("remediator", Remediator)

WRITE_BATCHER = web.AppKey("write_batcher", WriteBatcher)

RESPONSE_COUNTS: web.AppKey[dict[int, int]] = web.AppKey("response_counts", dict)


async def handle_webhook(request: web.Request) -> web.Response:
    """Journals a delivery from Alertmanager and responds; decisions follow later."""
    answer = await with_memory_error_response(_receive, "out of memory; delivery not accepted")(
        request
    )
    answered = request.app[RESPONSE_COUNTS]
    answered[answer.status] = answered.get(answer.status, 0) + 1
    return answer


async def _receive(request: web.Request) -> web.Response:
    remediator = request.app[REMEDIATOR]
    if (refused := await refuse_without_credential(request, remediator)) is not None:
        return refused
    if not remediator.readiness.ready:
        return web.Response(status=503, text="starting or stopping\n")
    try:
        async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
            body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        return web.Response(status=413, text="too large\n")
    except TimeoutError:
        answer = web.Response(status=400, text="request body timed out\n")
        answer.force_close()
        return answer
    except web.RequestPayloadError:
        return web.Response(status=400, text="request body is corrupted\n")
    try:
        if len(body) <= INLINE_PARSE_BYTES:
            notification = parse_notification(body)
        else:
            notification = await asyncio.to_thread(parse_notification, body)
    except MalformedWebhookError as error:
        log.warning("malformed webhook", extra={"error": str(error)})
        return web.Response(status=400, text=f"{error}\n")
    if notification.truncated:
        log.warning("delivery is truncated", extra={"truncated": notification.truncated})
    try:
        await request.app[WRITE_BATCHER].write(notification.alerts)
    except JournalError as error:
        log.error("journal failed", extra={"error": str(error)})
        return web.Response(status=503, text="journal unavailable\n")
    remediator.unhandled_alerts.received_through(notification.receiver)
    remediator.control_loop.wake()
    return web.Response(text="accepted\n")


def _record_alerts(remediator: Remediator, alerts: Sequence[Alert]) -> None:
    heartbeats = [alert for alert in alerts if alert.name == WATCHDOG]
    remediator.journal.record_alerts(
        [alert for alert in alerts if alert.name != WATCHDOG],
        heartbeat=any(alert.firing for alert in heartbeats),
    )
