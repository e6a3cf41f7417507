"""What is seen where the exporter cannot be asked, by threads that a hung disk holds up apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from trainwarden_exporter.lane import Lane
from trainwarden_remediator.exceptions import UnknownError
from trainwarden_remediator.sight import RunSight, Sight

SAVES_SECONDS = 3.0
"""How long the folders of checkpoints may take to answer; else it is not known how they stand."""

Saves = Mapping[str, RunSight]
"""The checkpoints of each run that has any."""


class OwnLook:
    """Looks in two threads of its own: at memory and workers, and at checkpoints.

    `use` says who looks at which; both block, and raise UnknownError.
    """

    def __init__(self, lane: Callable[[str], Lane]) -> None:
        self._lane = lane("look where the exporter cannot be asked")
        self._saves_lane = lane("look at checkpoints where the exporter cannot be asked")
        self._asked: asyncio.Future[Saves] | None = None

    def use(self, look: Callable[[], Sight], saves: Callable[[], Saves]) -> None:
        """Look by these from now on."""
        self._look = look
        self._saves = saves

    async def at_memory(self) -> Sight:
        """Memory and workers. Raises UnknownError."""
        try:
            return await self._lane.call(self._look)
        except MemoryError as error:
            raise UnknownError("no memory to look by itself") from error

    async def at_all(self) -> Sight:
        """The same, and how checkpoints stand, where their disk answers. Raises UnknownError."""
        sight = await self.at_memory()
        # One that hangs is not asked a second time, and whoever asks meanwhile shares the answer.
        if self._asked is None or self._asked.done():
            self._asked = self._saves_lane.call(self._saves)
            # What comes too late is nobody's to hear, and no error of the program.
            self._asked.add_done_callback(lambda late: late.cancelled() or late.exception())
        asked = self._asked
        await asyncio.wait([asked], timeout=SAVES_SECONDS)
        if not asked.done():
            return replace(sight, saves_unknown="the disk of the checkpoints does not answer")
        try:
            return replace(sight, runs=asked.result())
        except (UnknownError, MemoryError) as error:
            return replace(sight, saves_unknown=str(error) or "no memory to look at checkpoints")
