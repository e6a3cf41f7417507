"""Records the ends of runs, and what lives on then, for receivers that want to know them."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

from trainwarden_exporter.frameworks.error_lines import as_shown
from trainwarden_exporter.processes.left_behind import count_left_behind
from trainwarden_exporter.runtime.formatting import made_all_steps
from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.exceptions import JournalError, ObservationError
from trainwarden_remediator.observation.model import ExporterState, RunState

RUNS_SECONDS = 30.0
"""Seconds between two observations of the runs."""

UNENDED_SECONDS = 300.0
"""Seconds after which a process of a finished run that has not ended is reported: a last save, or
the flush of a tracker, may take minutes."""

LAST_STEP_SECONDS = 1800.0
"""Seconds after which a run that has made its last step and has not ended is reported: most exports
take less, and only stacks could show that it hangs."""

MISSED_SECONDS = 3600.0
"""How long ago a run may have finished that is reported though this program did not run then."""

ENDING_SECONDS = 60.0
"""Seconds that the other commands of a finished run may need to end before they are named."""


class FinishedRuns:
    """The runs that have finished, as the exporter shows them."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._known: set[str] | None = None
        """At the start, runs that finished before are not reported, unless they are announced and
        their end was missed. From then on a run may begin and finish between two observations."""
        self._ending: dict[str, float] = {}
        """Finished runs whose other commands still run, and since when."""
        self._left: dict[str, frozenset[tuple[str, float]]] = {}
        """The commands that were last named beside a finished run, by name and start: they ring
        once, and not at each end of a run whose server is to go on."""
        self._unended: dict[str, float] = {}
        """Runs whose processes may live on, and since when."""
        self._ends: dict[str, float] = {}
        """Runs that have made their last step, and since when; infinite once reported."""

    async def run(self) -> None:
        while True:
            receivers = self._context.setup.config.notify.receivers
            if any("finished" in receiver.events for receiver in receivers):
                with suppress(ObservationError, JournalError, MemoryError):
                    exporter = await self._context.observer.observe()
                    await self._record_ends(exporter)
                    await self._record_unended(exporter)
                    await self._record_ending(exporter)
            await self._context.clock.sleep(RUNS_SECONDS)

    async def _record_ends(self, exporter: ExporterState) -> None:
        runs = exporter.all_runs
        finished = {name for name, run in runs.items() if run.finished}
        if self._known is None:
            self._known = finished - await asyncio.to_thread(self._unreported)
        self._known -= runs.keys() - finished
        self._ending = {name: at for name, at in self._ending.items() if name in finished}
        for name in sorted(finished - self._known):
            run, now = runs[name], self._context.clock.monotonic()
            others, known = self._running_commands(name), self._left.get(name, frozenset())
            if others and now - self._ending.setdefault(name, now) < ENDING_SECONDS:
                continue  # `trainwarden run` stops those of its file with the run
            is_complete = run.total_steps is not None and run.step == run.total_steps
            all_made = made_all_steps(run.step, run.total_steps)
            failed = {} if all_made else self._perhaps_failed(name)
            left = await asyncio.to_thread(self._count_left_behind, name)
            # what lives on after all steps trains no more
            goes_on = {"goes_on": left} if left and not is_complete else {}
            still: dict[str, object] = {}
            if names := sorted(worker for worker, _ in others):
                still = {"still_run": names, "stop": f"trainwarden stop {name}"}
                still["rings"] = not others <= known
            await self._record(name, run, **goes_on, **still, **failed, **run.spoilt)
            self._known.add(name)
            self._left[name] = others
            self._unended[name] = self._context.clock.monotonic()

    async def _record_unended(self, exporter: ExporterState) -> None:
        for name, since in list(self._unended.items()):
            run = exporter.runs.get(name)
            if run is None or not (run.finished and run.trainer_processes):
                del self._unended[name]
            elif self._context.clock.monotonic() - since >= UNENDED_SECONDS:
                waits = run.unended or "what its processes wait for is not known"
                is_announced = any(key.run == name for key in self._context.setup.announced.workers)
                stop = f"trainwarden stop {name}" if is_announced else ""
                await self._record(name, run, unended=waits, stop=stop)
                del self._unended[name]

    async def _record_ending(self, exporter: ExporterState) -> None:
        now = self._context.clock.monotonic()
        ending = {
            name: run
            for name, run in exporter.runs.items()
            if run.last_step_made and run.trainer_processes and not run.finished
        }
        self._ends = {name: self._ends.get(name, now) for name in ending}
        for name, run in ending.items():
            if run.ends and now - self._ends[name] >= LAST_STEP_SECONDS:
                waits = run.waits or "it may export or upload"
                await self._record(name, run, unended=waits, ends=True)
                self._ends[name] = math.inf

    async def _record(self, name: str, run: RunState, **more: object) -> None:
        """Records that a run has finished, or, with `unended`, that its processes live on.

        With `ends`, it has made its last step, and has not finished.
        """
        facts = {"run": name, "step": run.step, "total": run.total_steps, **more}
        await asyncio.to_thread(self._context.journal.record_event, "run_finished", **facts)

    def _unreported(self) -> set[str]:
        """Returns the announced runs whose end was missed, as during a `down` and `up`."""
        began, reported = self._context.journal.ends_of_runs()
        since = max(began, self._context.clock.now() - MISSED_SECONDS)
        return {
            key.run
            for key, one in self._context.setup.announced.workers.items()
            if one.announcement.state == "finished"
            and (one.announcement.ended_at or 0.0) > max(since, reported.get(key.run, 0.0))
        }

    def _perhaps_failed(self, run: str) -> dict[str, object]:
        """Returns the error that a finished command has printed last, if there is one.

        It may have failed with it, though its exit status is 0, or have caught it.
        """
        for key, one in self._context.setup.announced.workers.items():
            found = one.announcement
            if key.run == run and found.state == "finished" and found.final_error:
                error = as_shown(found.final_error)
                facts = {"last_error": error, "log": str(found.log or "")}
                return {"perhaps_failed": True, **facts, "start": found.start_command}
        return {}

    def _running_commands(self, run: str) -> frozenset[tuple[str, float]]:
        """Returns the announced commands of a run that have not ended, with their starts."""
        announced = self._context.setup.announced.workers.items()
        return frozenset(
            (key.worker, one.announcement.announced_at)
            for key, one in announced
            if key.run == run and not one.announcement.has_ended
        )

    def _count_left_behind(self, run: str) -> int:
        """Returns how many processes of a run that has finished go on."""
        announced = self._context.setup.announced.workers.items()
        return count_left_behind(one.announcement for key, one in announced if key.run == run)
