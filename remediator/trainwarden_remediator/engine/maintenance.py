"""Background maintenance: tracks the descendants of targets, verifies and prunes the journal.

Each task has a thread of its own, which may hang without blocking anything else. The ends of runs
are recorded too, for receivers that want to know them.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial

from trainwarden_exporter.processes.left_behind import count_left_behind
from trainwarden_exporter.processes.matching import Matcher
from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.engine.state_loader import budget_window
from trainwarden_remediator.exceptions import JournalError, ObservationError
from trainwarden_remediator.observation.model import RunState

log = logging.getLogger(__name__)

DESCENDANTS_SECONDS = 5.0
"""Seconds between two scans for descendants of target processes."""

PRUNE_SECONDS = 600.0
"""Seconds between two prunings of the journal."""

RUNS_SECONDS = 30.0
"""Seconds between two observations of the runs."""

UNENDED_SECONDS = 300.0
"""Seconds after which a process of a finished run that has not ended is reported: a last save, or
the flush of a tracker, may take minutes."""

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
            group.create_task(self._record_finished_runs(), name="record finished runs")

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

    async def _record_finished_runs(self) -> None:
        # At the start: runs that finished before are not reported again. From then on a run may
        # also begin and finish between two observations.
        known: set[str] | None = None
        unended: dict[str, float] = {}
        while True:
            receivers = self._context.setup.config.notify.receivers
            if any("finished" in receiver.events for receiver in receivers):
                with suppress(ObservationError, JournalError, MemoryError):
                    exporter = await self._context.observer.observe()
                    finished = {name for name, run in exporter.runs.items() if run.finished}
                    known = finished if known is None else known - (exporter.runs.keys() - finished)
                    for name in sorted(finished - known):
                        own = exporter.runs[name]
                        is_complete = own.total_steps is not None and own.step == own.total_steps
                        left = await asyncio.to_thread(self._left_behind, name)
                        # what lives on after all steps trains no more
                        goes_on = {"goes_on": left} if left and not is_complete else {}
                        await self._record_finished(name, own, **goes_on)
                        known.add(name)
                        unended[name] = self._clock.monotonic()
                    for name, since in list(unended.items()):
                        run = exporter.runs.get(name)
                        if run is None or not (run.finished and run.trainer_processes):
                            del unended[name]
                        elif self._clock.monotonic() - since >= UNENDED_SECONDS:
                            waits = run.unended or "what its processes wait for is not known"
                            announced = self._context.setup.announced.workers
                            is_announced = any(key.run == name for key in announced)
                            stop = f"trainwarden stop {name}" if is_announced else ""
                            await self._record_finished(name, run, unended=waits, stop=stop)
                            del unended[name]
            await self._clock.sleep(RUNS_SECONDS)

    async def _record_finished(self, name: str, run: RunState, **more: object) -> None:
        """Records that a run has finished, or, with `unended`, that its processes live on."""
        facts = {"run": name, **more}
        record = self._journal.record_event
        await asyncio.to_thread(
            record, "run_finished", step=run.step, total=run.total_steps, **facts
        )

    def _left_behind(self, run: str) -> int:
        """Returns how many processes of a run that has finished go on."""
        announced = self._context.setup.announced.workers.items()
        return count_left_behind(one.announcement for key, one in announced if key.run == run)

    async def _verify(self) -> None:
        while True:
            await self._clock.sleep(VERIFY_SECONDS)  # the start has verified it
            try:
                await self._verifying.call(self._journal.file.verify)
            except (JournalError, MemoryError) as error:
                log.error("journal not verified", extra={"error": str(error) or "out of memory"})
