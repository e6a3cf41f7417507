"""Brings actions that a crash cut short to their end: by looking, never by repeating them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from trainwarden_remediator.actions.base import Action, Standing
from trainwarden_remediator.carrying import VERIFY_SECONDS, Carrier, Clock, Order
from trainwarden_remediator.exceptions import ActionError
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.records import OpenAction

log = logging.getLogger(__name__)


class Settler:
    """Settles one action after the other, or several at once.

    `why_not` says why what was ended must not be started now, or nothing.
    """

    def __init__(
        self,
        journal: Journal,
        carrier: Carrier,
        *,
        clock: Clock,
        why_not: Callable[[OpenAction], str],
    ) -> None:
        self._journal = journal
        self._carrier = carrier
        self._clock = clock
        self._why_not = why_not

    async def settle(self, left: OpenAction, order: Order | None) -> None:
        """Bring `left` to its end; `order` is None where it is about no target any more."""
        if order is None:
            await self._let_go(left)
            return
        if left.result is not None:
            await self._carrier.verify(order, left.intent_at)
            return
        standing = await self._await_end(left, order.action)
        match standing:
            case Standing.STARTED:
                facts = {"settled": standing.value}
                await self._carrier.record(self._journal.finished, left.id, "done", **facts)
                await self._carrier.verify(order, left.intent_at)
            case Standing.ENDED if left.reached is not None:
                if why := await asyncio.to_thread(self._why_not, left):
                    await self._interrupted(left, f"ended, not started again: {why}")
                else:
                    await self._carrier.carry_out(
                        order, lambda mark, announce, _: order.action.finish(mark, announce)
                    )
            case _:
                await self._interrupted(left, standing.value)

    async def _let_go(self, left: OpenAction) -> None:
        why = "it is no target any more"
        if left.result is None:
            await self._interrupted(left, why)
        else:
            await self._carrier.record(self._journal.verified, left.id, "not_healed", seen=why)

    async def _await_end(self, left: OpenAction, action: Action) -> Standing:
        """How things stand; what was told to end is given its time to do so."""
        mark = self._journal.mark_of(left.key, left.id)
        deadline = self._clock.monotonic() + action.grace
        while True:
            try:
                question = partial(action.standing, mark, left.processes)
                standing = await self._carrier.ask(action, question)
            except ActionError as error:
                log.error("cannot settle", extra={**left.key._asdict(), "error": str(error)})
            else:
                late = self._clock.monotonic() >= deadline
                if standing is not Standing.UNTOUCHED or left.reached is None or late:
                    return standing
            await self._clock.sleep(VERIFY_SECONDS)

    async def _interrupted(self, left: OpenAction, why: str) -> None:
        log.warning("action was cut short", extra={**left.key._asdict(), "found": why})
        await self._carrier.record(self._journal.finished, left.id, "interrupted", found=why)
