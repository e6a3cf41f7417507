"""Takes evidence: asks every source at once, and waits for none of them for long.

It must never stop or delay what is to be done: what could not be had in time is named, and that is
all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from trainwarden_exporter.exceptions import TrainwardenError
from trainwarden_exporter.lane import Lane
from trainwarden_remediator.config import Setup
from trainwarden_remediator.evidence.fitting import fitted
from trainwarden_remediator.evidence.occasion import Occasion
from trainwarden_remediator.evidence.seen import seen_of
from trainwarden_remediator.evidence.sources import Source, sources
from trainwarden_remediator.exceptions import UnknownError
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.world import Eyes, World

log = logging.getLogger(__name__)

PATIENCE = 2.0
"""Seconds that all of it may take together."""

Sources = Callable[[Occasion, Setup], Mapping[str, Source]]


class EvidenceTaker:
    """Takes evidence and keeps it in the journal.

    A source that has not answered since an earlier time is not asked again until it has.
    """

    def __init__(
        self,
        journal: Journal,
        eyes: Callable[[], Eyes],
        *,
        lane: Callable[[str], Lane] = Lane,
        sources: Sources = sources,
        patience: float = PATIENCE,
    ) -> None:
        self._journal = journal
        self._eyes = eyes
        self._lane = lane
        self._sources = sources
        self._patience = patience
        self._under_way: set[str] = set()
        self._keeping: set[asyncio.Task[None]] = set()

    async def take(self, occasion: Occasion, setup: Setup) -> None:
        """Take it now; returns in time, and raises nothing but what ends the program."""
        task = asyncio.create_task(self._take(occasion, setup), name="take evidence")
        # What is still being written down goes on in the background.
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)
        await asyncio.wait([task], timeout=self._patience)

    async def _take(self, occasion: Occasion, setup: Setup) -> None:
        try:
            content = await self._gather(occasion, setup)
            text = await asyncio.to_thread(fitted, content)
            await asyncio.to_thread(
                self._journal.keep_evidence,
                occasion.incident,
                occasion.action,
                occasion.kind,
                text,
            )
        # Whatever it is, the act matters more.
        except Exception as error:
            log.warning("no evidence kept", extra={"incident": occasion.incident}, exc_info=error)

    async def _gather(self, occasion: Occasion, setup: Setup) -> Mapping[str, Any]:
        # A little less than the whole: writing it down takes time, too.
        patience = 0.75 * self._patience
        missing: dict[str, str] = {}
        wanted = {} if occasion.kind == "end" else self._sources(occasion, setup)
        asked = {name: self._ask(name, source, missing) for name, source in wanted.items()}
        looking = asyncio.create_task(self._look(occasion, missing), name="look for evidence")
        futures = [one for one in asked.values() if one is not None]
        await asyncio.wait([looking, *futures], timeout=patience)
        content: dict[str, Any] = {"missing": missing}
        if looking.done():
            if (world := looking.result()) is not None and world.sight is not None:
                content["seen"] = seen_of(world.sight, occasion.run, occasion.key)
        else:
            looking.cancel()
            missing["the exporter's page"] = f"no answer within {patience:g} s"
        for name, answer in asked.items():
            if answer is None:
                continue
            if not answer.done():
                missing[name] = f"no answer within {patience:g} s"
            elif (error := answer.exception()) is not None:
                missing[name] = _told(error)
            else:
                _put(content, name, answer.result())
        return content

    def _ask(
        self, name: str, source: Source, missing: dict[str, str]
    ) -> asyncio.Future[Any] | None:
        if name in self._under_way:
            missing[name] = "what was asked earlier has not been answered yet"
            return None
        try:
            lane = self._lane(f"evidence: {name}")
        except RuntimeError as error:  # the box has run out of threads
            missing[name] = str(error)
            return None
        answer = lane.call(source)
        lane.close()
        self._under_way.add(name)
        answer.add_done_callback(lambda _: self._under_way.discard(name))
        return answer

    async def _look(self, occasion: Occasion, missing: dict[str, str]) -> World | None:
        """What was seen when it was decided; where nobody looked then, what is seen now."""
        if occasion.world is not None:
            if occasion.world.sight is None:
                missing["the exporter's page"] = occasion.world.unknown
            return occasion.world
        try:
            return World(alerts=None, sight=await self._eyes().look())
        except UnknownError as error:
            missing["the exporter's page"] = str(error)
            return None


def _put(content: dict[str, Any], name: str, found: Any) -> None:
    if not name.startswith("log "):
        content[name] = found
    elif found is None:
        content["missing"][name] = "there is no such file, or it is not a regular one"
    else:
        logs = content.setdefault("logs", [])
        # The output of a worker may be a log of its run, too.
        if found["path"] not in [known["path"] for known in logs]:
            logs.append(found)


def _told(error: BaseException) -> str:
    if isinstance(error, TrainwardenError | OSError):
        return str(error)
    return f"{type(error).__name__}: {error}"
