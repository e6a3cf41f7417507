"""What is seen where the exporter cannot be asked, by threads that a hung disk holds up apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trainwarden_exporter.lane import Lane
from trainwarden_remediator.exceptions import UnknownError
from trainwarden_remediator.sight import RunSight, Sight

SAVES_SECONDS = 3.0
"""How long the folders of checkpoints may take to answer; else it is not known how they stand."""

APART = 4
"""So many threads look at checkpoints, of which each may hang with no harm to the others."""

Saves = Mapping[str, RunSight]
"""The checkpoints of each run that has any."""


@dataclass(frozen=True, slots=True)
class SavesLook:
    """Sees how the checkpoints of `runs` stand; `look` blocks, and raises UnknownError."""

    runs: Collection[str]
    look: Callable[[], Saves]


class OwnLook:
    """Looks in threads of its own: in one at memory and workers, in others at checkpoints.

    `use` says who looks at which: `look` blocks, and raises UnknownError. Raises NoThreadError
    where it gets no threads.
    """

    def __init__(self, lane: Callable[[str], Lane]) -> None:
        # Had from the start: later there may be no threads to be had.
        self._lane = lane("look where the exporter cannot be asked")
        self._apart = [_Apart(lane(f"look at checkpoints, {number}")) for number in range(APART)]

    def use(self, look: Callable[[], Sight], saves: Sequence[SavesLook]) -> None:
        """Look by these from now on; of `saves` there are at most APART."""
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
        asked = [
            (saves.runs, apart.ask(saves.look))
            for saves, apart in zip(self._saves, self._apart, strict=False)
        ]
        if asked:
            await asyncio.wait([answer for _, answer in asked], timeout=SAVES_SECONDS)
        known = {run: one for runs, answer in asked for run, one in _known(runs, answer)}
        return replace(sight, runs=known)


class _Apart:
    """One thread that looks at checkpoints. While it hangs, nobody else is sent after it."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._asked: asyncio.Future[Saves] | None = None

    def ask(self, look: Callable[[], Saves]) -> asyncio.Future[Saves]:
        """What is seen; whoever asks meanwhile shares the answer."""
        if self._asked is None or self._asked.done():
            self._asked = self._lane.call(look)
            # What comes too late is nobody's to hear, and no error of the program.
            self._asked.add_done_callback(lambda late: late.cancelled() or late.exception())
        return self._asked


def _known(runs: Collection[str], answer: asyncio.Future[Saves]) -> Iterator[tuple[str, RunSight]]:
    """Each of `runs` that has checkpoints, or why it is not known how these stand."""
    seen: Saves = {}
    why = "the disk of the checkpoints does not answer"
    if answer.done():
        try:
            # Runs are missing where it was asked before the configuration was another.
            seen, why = answer.result(), "not looked at yet"
        except (UnknownError, MemoryError) as error:
            why = str(error) or "no memory to look at checkpoints"
    for run in runs:
        yield run, seen.get(run, RunSight(saves_unknown=why))
