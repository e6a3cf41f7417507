"""Corrects the journal when the clock of the host was set."""

from __future__ import annotations

import asyncio
import logging

from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.engine.state_loader import budget_window
from trainwarden_remediator.runtime.clock import ClockWatch

log = logging.getLogger(__name__)


class ClockCorrection:
    """Moves the times in the journal with the clock, so that they are as long ago as before."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._watch = ClockWatch(context.clock)
        self._uncorrected = 0.0
        self._checked = False

    async def apply(self) -> None:
        """Corrects the journal if the clock was set since the last call. Raises JournalError."""
        journal = self._context.journal
        self._uncorrected += self._watch.jump()
        if jump := self._uncorrected:
            log.warning("the clock was set", extra={"seconds": round(jump)})
            config = self._context.setup.config
            counted = max(budget_window(config), config.alert_stale_after)
            await asyncio.to_thread(journal.record_clock_jump, jump, counted)
            self._uncorrected = 0.0
        if jump or not self._checked:
            if moved := await asyncio.to_thread(journal.move_future_times):
                log.warning("actions of the future count from now", extra={"count": moved})
            self._checked = True
