"""Ends what holds a GPU and belongs to no worker: exactly that, and until the memory is back."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.gpu.holders import Holder
from trainwarden_exporter.gpu.view import GpuView, look_at_gpus
from trainwarden_exporter.lane import within
from trainwarden_exporter.processes.pidfile import read_pid_file
from trainwarden_exporter.processes.procfs import read_processes, start_timestamp
from trainwarden_remediator.actions.base import Action, Announce, Saving, Standing, never
from trainwarden_remediator.actions.gpumemory import LOOK_PATIENCE, await_memory, describe_late
from trainwarden_remediator.ending import end, lives, protected
from trainwarden_remediator.exceptions import ActionError
from trainwarden_remediator.sight import Sight
from trainwarden_remediator.subjects import Subject, processes_among
from trainwarden_remediator.targets import GpuCleanup


class GpuCleanupAction(Action):
    """Ends the leftovers that the configuration allows it to end.

    No GPU is reset, and no process is chosen by its name: a leftover is what the exporter's own
    eyes find on a GPU, in no worker's tree, and neither protected nor spared by the configuration.
    """

    kind = "gpu_cleanup"
    only_ends = True

    def __init__(
        self,
        cleanup: GpuCleanup,
        watched: ExporterConfig,
        *,
        look: Callable[[ExporterConfig], GpuView] = look_at_gpus,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._cleanup = cleanup
        self._watched = watched
        self._look = look
        self._now = now
        self._spared = 0

    @property
    def grace(self) -> float:
        return self._cleanup.grace

    def processes(self) -> Collection[Subject]:
        return [holder.process.identity for holder in self.sort()[1]]

    def sort(self) -> tuple[tuple[Holder, ...], tuple[Holder, ...]]:
        """What is spared, observers too, and what this would end. Raises ActionError."""
        view = self._view()
        spared, chosen = self._sorted(view)
        return (*view.survey.observers, *spared), chosen

    def _sorted(self, view: GpuView) -> tuple[tuple[Holder, ...], tuple[Holder, ...]]:
        orphans = view.survey.orphans
        named = set(self._pids_in_files())
        chosen = tuple(
            holder
            for holder in choose(orphans, self._cleanup, now=self._now())
            if holder.process.pid not in named
        )
        return tuple(orphan for orphan in orphans if orphan not in chosen), chosen

    def perform(
        self,
        mark: str,
        announce: Announce,
        meant: Collection[Subject] | None = None,
        saving: Saving = never,
    ) -> Mapping[str, Any]:
        before = self._view()
        spared, chosen = self._sorted(before)
        if meant is not None:
            spared += tuple(one for one in chosen if one.process.identity not in meant)
            chosen = tuple(one for one in chosen if one.process.identity in meant)
        # One that is only too young yet is no success: it has to be ended as well.
        self._spared = count_holds(one for one in spared if not self._is_young(one))
        if not chosen:
            return {"ended": [], "killed": []}
        if reason := protected((holder.process for holder in chosen), read_processes()):
            raise ActionError(f"refused: {reason}")
        ended = [
            {"pid": holder.process.pid, "owner": holder.owner, "command": holder.command[:200]}
            for holder in chosen
        ]
        announce("end", processes=ended)
        # Not what stands below them: the launcher of an earlier run may hold the GPU, and the
        # worker that it started be in good health.
        killed = end((holder.process.identity for holder in chosen), grace=self.grace)
        listed = {holder.process.pid for holder in chosen if holder.listed}
        if late := await_memory(self._view, before, listed, self._cleanup.memory_back_within):
            told = describe_late(late)
            raise ActionError(f"the processes are gone, their memory is not back: {told}")
        return {"ended": ended, "killed": list(killed)}

    def finish(self, mark: str, announce: Announce) -> Mapping[str, Any]:
        return {"settled": "ended"}

    def standing(self, mark: str, before: Collection[Subject]) -> Standing:
        return Standing.UNTOUCHED if any(map(lives, processes_among(before))) else Standing.ENDED

    def illness(self, sight: Sight, began: float) -> str:
        if sight.gpu_orphans is None:
            return "the exporter does not show who holds the GPUs"
        left = sight.gpu_orphans - self._spared
        return f"{left:g} holds by processes of no worker are left" if left > 0 else ""

    def _is_young(self, holder: Holder) -> bool:
        return self._now() - start_timestamp(holder.process.identity) < self._cleanup.min_age

    def _pids_in_files(self) -> Iterator[int]:
        """What any worker's pid file names, be it believed or not: no stranger to be ended."""
        for run in self._watched.runs:
            for worker in run.workers:
                if worker.match.pid_file is None:
                    continue
                try:
                    file = read_pid_file(worker.match.pid_file)
                except OSError as error:
                    raise ActionError(f"cannot read {worker.match.pid_file}: {error}") from error
                if file is not None:
                    yield file.pid

    def _view(self) -> GpuView:
        if not any(run.workers for run in self._watched.runs):
            raise ActionError("no worker is configured: nobody can be told to be a stranger")
        try:
            view = within(LOOK_PATIENCE, lambda: self._look(self._watched))
        except (CollectError, TimeoutError) as error:
            raise ActionError(f"cannot see who holds the GPUs: {error}") from error
        if view.undecided:
            names = ", ".join("/".join(key) for key in sorted(view.undecided))
            raise ActionError(f"cannot tell which processes are {names}: a file is not readable")
        return view


def choose(orphans: Iterable[Holder], cleanup: GpuCleanup, *, now: float) -> Iterable[Holder]:
    """Those of `orphans` that may be ended; `now` in Unix seconds."""
    for holder in orphans:
        age = now - start_timestamp(holder.process.identity)
        if (
            age >= cleanup.min_age
            and (not cleanup.owners or holder.owner in cleanup.owners)
            and (cleanup.command is None or cleanup.command.search(holder.command))
        ):
            yield holder


def count_holds(holders: Iterable[Holder]) -> int:
    """Holds as the exporter counts them: one for each GPU of each process."""
    return sum(len(holder.gpus) for holder in holders)
