"""Sends notifications, independently of the decision loop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import aiohttp

from trainwarden_remediator.config.notifications import URGENT, NotifySettings, Receiver
from trainwarden_remediator.exceptions import JournalError, NotDeliveredError
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.notify.formats import build_request
from trainwarden_remediator.notify.http import HttpSender, Sender
from trainwarden_remediator.notify.messages import (
    Notification,
    build_message,
    build_trial_message,
    without_values,
)
from trainwarden_remediator.notify.outbox import Outbox
from trainwarden_remediator.runtime.clock import Clock

log = logging.getLogger(__name__)

_ADVISED = frozenset({"again", "finite_until", "passed_over"})
"""Facts of what is not urgent, about which an operator does something all the same."""

POLL_SECONDS = 1.0
"""Time between two checks for new notifications."""

MIN_INTERVAL_SECONDS = 5.0
"""Minimum time between two messages to one receiver; the next message includes what came since."""

MIN_BACKOFF_SECONDS = 5.0

MAX_BACKOFF_SECONDS = 300.0
"""The longest delay before a failed delivery is retried; the first is MIN_BACKOFF_SECONDS."""


Advise = Callable[[Notification], str]
"""Returns what an operator does about what a notification reports, or ""."""

AsOfNow = Callable[[Notification], Awaitable[Notification | None]]
"""Returns a notification as it is true now, or None."""


async def _unchanged(notification: Notification) -> Notification:
    return notification


@dataclass(slots=True)
class _ReceiverState:
    """The delivery state of one receiver. `next_attempt_at`: on the monotonic clock."""

    next_attempt_at: float = 0.0
    backoff: float = MIN_BACKOFF_SECONDS
    rejected: bool = False
    last_error: str = ""
    delivered: tuple[Notification, ...] = ()
    """Notifications delivered but not yet recorded as sent: they must not be sent again."""


class Notifier:
    """Delivers the pending notifications of each receiver, with retries."""

    def __init__(
        self,
        notify: NotifySettings,
        outbox: Outbox,
        sender: Sender,
        *,
        clock: Clock,
        mode: str,
        holds: Callable[[], Sequence[Hold]] = tuple,
        advise: Advise = lambda _: "",
        as_of_now: AsOfNow = _unchanged,
    ) -> None:
        """`holds` returns the holds in force; both it and `advise` block."""
        self._notify = notify
        self._mode = mode
        self._holds = holds
        self._advise = advise
        self._as_of_now = as_of_now
        self._outbox = outbox
        self._sender = sender
        self._clock = clock
        self._receivers: dict[str, _ReceiverState] = {}
        self._busy: set[str] = set()
        self._failing = False

    def reconfigure(self, notify: NotifySettings, *, mode: str) -> None:
        """Applies another configuration and retries failed deliveries at once."""
        self._notify = notify
        self._mode = mode
        for state in self._receivers.values():
            state.next_attempt_at = 0.0

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    await self._send_due(group)
                    self._failing = False
                except (JournalError, MemoryError) as error:
                    if not self._failing:
                        problem = str(error) or "out of memory"
                        log.error("notifications cannot be sent", extra={"error": problem})
                    self._failing = True
                await self._clock.sleep(POLL_SECONDS)

    async def _send_due(self, group: asyncio.TaskGroup) -> None:
        notify = self._notify
        while await asyncio.to_thread(self._outbox.collect, notify):
            pass
        await asyncio.to_thread(self._outbox.expire, notify)
        for receiver in notify.receivers:
            state = self._receivers.setdefault(receiver.name, _ReceiverState())
            if receiver.name in self._busy or self._clock.monotonic() < state.next_attempt_at:
                continue
            self._busy.add(receiver.name)
            # A task for each receiver, so that a hanging receiver delays no other.
            group.create_task(self._deliver(receiver, state), name=f"notify {receiver.name}")

    async def _deliver(self, receiver: Receiver, state: _ReceiverState) -> None:
        try:
            await self._attempt_delivery(receiver, state)
        except (JournalError, MemoryError) as error:
            state.next_attempt_at = self._clock.monotonic() + MIN_BACKOFF_SECONDS
            facts = {"receiver": receiver.name, "error": str(error) or "out of memory"}
            log.error("notification delayed", extra=facts)
        finally:
            self._busy.discard(receiver.name)

    async def _attempt_delivery(self, receiver: Receiver, state: _ReceiverState) -> None:
        await self._record_delivered(state)
        notifications = await self._true_ones(
            await asyncio.to_thread(self._outbox.pending, receiver.name)
        )
        if not notifications:
            return
        message = build_message(
            await asyncio.to_thread(self._with_advice, notifications),
            instance=instance_name(self._notify),
            mode=self._mode,
            holds=await asyncio.to_thread(self._holds),
        )
        if state.rejected:
            message = without_values(message)
        try:
            await self._sender(receiver, build_request(receiver.kind, message))
        except NotDeliveredError as error:
            state.next_attempt_at = self._clock.monotonic() + max(state.backoff, error.retry_after)
            state.backoff = min(state.backoff * 2, MAX_BACKOFF_SECONDS)
            state.rejected = error.rejected
            why, pending = str(error), len(notifications)
            facts = {"receiver": receiver.name, "error": why, "pending": pending}
            is_news, state.last_error = state.last_error != why, why
            if is_news:
                log.error("notification not delivered", extra=facts)
            news = facts if is_news else {}
            await asyncio.to_thread(self._outbox.record_failure, receiver.name, news)
            return
        state.next_attempt_at = self._clock.monotonic() + MIN_INTERVAL_SECONDS
        state.backoff, state.rejected = MIN_BACKOFF_SECONDS, False
        state.last_error, state.delivered = "", notifications
        facts = {"receiver": receiver.name, "notifications": len(notifications)}
        log.info("notification sent", extra=facts)
        await self._record_delivered(state)

    async def _true_ones(self, pending: Sequence[Notification]) -> tuple[Notification, ...]:
        """Returns what is to be sent, as it is true now; the rest is settled."""
        true, false = [], []
        for one in pending:
            now = await self._as_of_now(one)
            if now is None:
                false.append(one)
            else:
                true.append(now)
        if false:
            await asyncio.to_thread(self._outbox.settle, false, "nobody")
        return tuple(true)

    def _with_advice(self, notifications: Sequence[Notification]) -> Sequence[Notification]:
        return [
            replace(one, advice=self._advise(one))
            if one.notification_event in URGENT or _ADVISED & {*one.event.facts}
            else one
            for one in notifications
        ]

    async def _record_delivered(self, state: _ReceiverState) -> None:
        if state.delivered:
            await asyncio.to_thread(self._outbox.settle, state.delivered, "sent")
            state.delivered = ()


def instance_name(notify: NotifySettings) -> str:
    """Returns the name of this host in messages."""
    return notify.instance or socket.gethostname()


async def try_receivers(
    notify: NotifySettings, receivers: Sequence[Receiver]
) -> list[tuple[str, str]]:
    """Sends a test notification to each receiver; returns its name and the error, or ""."""
    message = build_trial_message(instance=instance_name(notify))
    results = []
    async with aiohttp.ClientSession() as session:
        sender = HttpSender(session)
        for receiver in receivers:
            problem = ""
            try:
                await sender(receiver, build_request(receiver.kind, message))
            except NotDeliveredError as error:
                problem = str(error)
            results.append((receiver.name, problem))
    return results
