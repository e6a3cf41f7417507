"""Background maintenance: tracks the descendants of targets, verifies and prunes the journal.

Each task has a thread of its own, which may hang without blocking anything else.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial

from trainwarden_exporter.processes.matching import Matcher
from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.engine.finished_runs import FinishedRuns
from trainwarden_remediator.engine.state_loader import budget_window
from trainwarden_remediator.exceptions import JournalError

log = logging.getLogger(__name__)

DESCENDANTS_SECONDS = 5.0
"""Seconds between two scans for descendants of target processes."""

PRUNE_SECONDS = 600.0
"""Seconds between two prunings of the journal."""

VERIFY_SECONDS = 3600.0
"""Seconds between two reads of the whole journal."""


class Maintenance:
    """Runs the maintenance tasks. Raises NoThreadError if its threads cannot be started."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._journal = context.journal
        self._clock = context.clock
        self._tracking = context.thread_factory("track descendants")
        self._pruning = context.thread_factory("prune the journal")
        self._verifying = context.thread_factory("verify the journal")

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._track_descendants(), name="track descendants")
            group.create_task(self._prune(), name="prune the journal")
            group.create_task(self._verify(), name="verify the journal")
            group.create_task(FinishedRuns(self._context).run(), name="record finished runs")

    async def _track_descendants(self) -> None:
        setup, matcher = None, None
        while True:
            if setup is not self._context.setup or matcher is None:
                setup = self._context.setup
                matcher = Matcher(setup.selectors)
            if keys := [key for target in setup.config.targets for key in target.keys]:
                with suppress(MemoryError):  # the last result stays; the next scan follows soon
                    await self._tracking.call(partial(self._context.tracker.observe, matcher, keys))
            await self._clock.sleep(DESCENDANTS_SECONDS)

    async def _prune(self) -> None:
        while True:
            try:
                await self._pruning.call(self._prune_now)
            except (JournalError, MemoryError) as error:
                log.error("journal not pruned", extra={"error": str(error) or "out of memory"})
            await self._clock.sleep(PRUNE_SECONDS)

    def _prune_now(self) -> None:
        config = self._context.setup.config
        now = self._journal.bounded_time(self._clock.since_boot(), self._clock.boot())
        self._journal.prune(config.journal_limits, budget_window(config), now)

    async def _verify(self) -> None:
        while True:
            await self._clock.sleep(VERIFY_SECONDS)  # the start has verified it
            try:
                await self._verifying.call(self._journal.file.verify)
            except (JournalError, MemoryError) as error:
                log.error("journal not verified", extra={"error": str(error) or "out of memory"})
