"""What goes on beside the deciding: who stands below the targets is seen, the journal kept short.

Each in a thread of its own, which may hang without holding anybody up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from trainwarden_exporter.lane import Lane
from trainwarden_exporter.processes.matching import Matcher
from trainwarden_remediator.carrying import Clock
from trainwarden_remediator.config import Setup
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.kin import KinMemory
from trainwarden_remediator.situation import looks_back

log = logging.getLogger(__name__)

KIN_SECONDS = 5.0
"""How often it is looked which processes stand below the targets."""

PRUNE_SECONDS = 600.0
"""How often the journal is kept to its limits."""


class Upkeep:
    """Goes by whatever `setup` is in force. Raises NoThreadError where it gets no threads."""

    def __init__(
        self,
        journal: Journal,
        kin: KinMemory,
        setup: Callable[[], Setup],
        *,
        clock: Clock,
        lane: Callable[[str], Lane],
    ) -> None:
        self._journal = journal
        self._kin = kin
        self._setup = setup
        self._clock = clock
        self._watching = lane("watch what stands below the targets")
        self._pruning = lane("prune the journal")

    async def run(self) -> None:
        """Go on for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_kin(), name="watch what stands below the targets")
            group.create_task(self._prune(), name="prune the journal")

    async def _watch_kin(self) -> None:
        setup, matcher = None, None
        while True:
            if setup is not self._setup() or matcher is None:
                setup = self._setup()
                matcher = Matcher(setup.selectors)
            if keys := [key for target in setup.config.targets for key in target.keys]:
                with suppress(MemoryError):  # what is known stays, and it is looked again soon
                    await self._watching.call(partial(self._kin.look, matcher, keys))
            await self._clock.sleep(KIN_SECONDS)

    async def _prune(self) -> None:
        while True:
            config = self._setup().config
            prune = partial(self._journal.prune, config.journal_limits, looks_back(config))
            try:
                await self._pruning.call(prune)
            except (JournalError, MemoryError) as error:
                log.error("journal not pruned", extra={"error": str(error) or "no memory"})
            await self._clock.sleep(PRUNE_SECONDS)
