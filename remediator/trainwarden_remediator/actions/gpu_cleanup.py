"""Terminates processes that hold a GPU and belong to no worker, until their memory is released."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.gpu.holders import Holder
from trainwarden_exporter.gpu.snapshot import GpuSnapshot, TakeGpuSnapshot, take_gpu_snapshot
from trainwarden_exporter.processes.pid_file import read_pid_file
from trainwarden_exporter.processes.procfs import read_owner, read_processes
from trainwarden_exporter.processes.selector import is_account
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.runtime.formatting import format_duration
from trainwarden_exporter.runtime.linear_search import is_found
from trainwarden_remediator.actions.base import (
    Action,
    ActionState,
    Confirm,
    IsSaving,
    RecordStep,
    confirm_always,
    never_saving,
)
from trainwarden_remediator.actions.gpu_memory import (
    describe_unreleased,
    read_gpus,
    wait_for_memory,
)
from trainwarden_remediator.actions.termination import is_alive, protection_reason, terminate
from trainwarden_remediator.config.targets import GpuCleanup
from trainwarden_remediator.exceptions import ActionError
from trainwarden_remediator.model import TargetInstance, processes_among
from trainwarden_remediator.observation.model import ExporterState


class GpuCleanupAction(Action):
    """Terminates the leftover processes that the configuration allows.

    A leftover is a process that the exporter's code finds on a GPU, outside of every worker's tree,
    and that is neither protected nor excluded by the configuration. Resets no GPU.
    """

    kind = "gpu_cleanup"
    only_terminates = True

    def __init__(
        self,
        cleanup: GpuCleanup,
        exporter_config: ExporterConfig,
        *,
        gpu_reader: TakeGpuSnapshot = take_gpu_snapshot,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._cleanup = cleanup.model_copy(
            update={"owners": cleanup.owners or default_owners(exporter_config)}
        )
        self._exporter_config = exporter_config
        self._gpu_reader = gpu_reader
        self._now = now
        self._spared = 0

    @property
    def grace(self) -> float:
        return self._cleanup.grace

    def find_instances(self) -> Collection[TargetInstance]:
        return [holder.process.identity for holder in self.select()[1]]

    def select(self) -> tuple[tuple[Holder, ...], tuple[Holder, ...]]:
        """Returns all holders that are spared, and those to terminate.

        Raises ActionError.
        """
        view = self._read_gpus()
        spared, chosen = self._partition(view)
        others = (holder for holder in view.survey.holders if not holder.orphan)
        return (*others, *spared), chosen

    def why_spared(self, holder: Holder) -> str:
        """Returns why a holder that `select` spares is not ended."""
        rules = self._cleanup
        if holder.worker is not None:
            return f"it belongs to worker {'/'.join(holder.worker)}"
        if holder.protected:
            return "it is a program that may hold a GPU, or gpu.protected names it"
        if holder.monitor_only:
            return "it only observes the GPU"
        if holder.attended:
            return f"somebody works with it: {holder.attended}"
        if holder.process.pid in set(self._pids_in_files()):
            return "the pid file of a worker names it"
        if not any(is_account(holder.owner, owner) for owner in rules.owners):
            return f"its account is none of {', '.join(rules.owners)}"
        if self._is_young(holder):
            return f"it is younger than {format_duration(rules.min_age)}"
        return "its command does not match gpu_cleanup.command"

    def _partition(self, view: GpuSnapshot) -> tuple[tuple[Holder, ...], tuple[Holder, ...]]:
        orphans = view.survey.orphans
        named = set(self._pids_in_files())
        chosen = tuple(
            holder
            for holder in select_leftovers(orphans, self._cleanup, now=self._now())
            if holder.process.pid not in named
        )
        return tuple(orphan for orphan in orphans if orphan not in chosen), chosen

    def perform(
        self,
        action_token: str,
        record_step: RecordStep,
        intended: Collection[TargetInstance] | None = None,
        saving: IsSaving = never_saving,
        confirm: Confirm = confirm_always,
    ) -> Mapping[str, Any]:
        before = self._read_gpus()
        spared, chosen = self._partition(before)
        if intended is not None:
            spared += tuple(one for one in chosen if one.process.identity not in intended)
            chosen = tuple(one for one in chosen if one.process.identity in intended)
        # A holder that is only too young does not count as spared: it has to be terminated too.
        self._spared = count_holds(one for one in spared if not self._is_young(one))
        if not chosen:
            return {"ended": [], "killed": []}
        if reason := protection_reason((holder.process for holder in chosen), read_processes()):
            raise ActionError(f"refused: {reason}")
        ended = [
            {"pid": holder.process.pid, "owner": holder.owner, "command": holder.shown[:200]}
            for holder in chosen
        ]
        confirm()
        record_step("end", processes=ended)
        # Not their descendants: the launcher of an earlier run may hold the GPU, while the worker
        # that it started is healthy.
        chosen_ones = (holder.process.identity for holder in chosen)
        killed = terminate(chosen_ones, grace=self.grace, confirm=confirm)
        listed = {holder.process.pid for holder in chosen if holder.listed}
        if unreleased := wait_for_memory(
            self._read_gpus, before, listed, self._cleanup.gpu_memory_release_timeout
        ):
            summary = describe_unreleased(unreleased)
            raise ActionError(
                f"the processes have ended, but their memory is not released: {summary}"
            )
        return {"ended": ended, "killed": list(killed)}

    def finish(self, action_token: str, record_step: RecordStep) -> Mapping[str, Any]:
        return {"settled": "ended"}

    def inspect(self, action_token: str, before: Collection[TargetInstance]) -> ActionState:
        some_left = any(map(is_alive, processes_among(before)))
        return ActionState.UNTOUCHED if some_left else ActionState.ENDED

    def health_problem(self, exporter: ExporterState, began: float) -> str:
        if exporter.gpu_orphans is None:
            return "the exporter does not show which processes hold the GPUs"
        left = exporter.gpu_orphans - self._spared
        return f"processes of no worker still hold GPUs ({left:g})" if left > 0 else ""

    def _is_young(self, holder: Holder) -> bool:
        return self._now() - start_timestamp(holder.process.identity) < self._cleanup.min_age

    def _pids_in_files(self) -> Iterator[int]:
        """Yields the pids in all workers' pid files, stale or not: they are never terminated."""
        for run in self._exporter_config.runs:
            for worker in run.workers:
                if worker.match.pid_file is None:
                    continue
                try:
                    file = read_pid_file(worker.match.pid_file)
                except OSError as error:
                    raise ActionError(f"cannot read {worker.match.pid_file}: {error}") from error
                if file is not None:
                    yield file.pid

    def _read_gpus(self) -> GpuSnapshot:
        if not any(run.workers for run in self._exporter_config.runs):
            raise ActionError("no worker is configured, so no process can count as a leftover")
        try:
            view = read_gpus(self._gpu_reader, self._exporter_config)
        except (CollectError, TimeoutError) as error:
            raise ActionError(f"cannot read which processes hold the GPUs: {error}") from error
        if view.undecided:
            names = ", ".join("/".join(key) for key in sorted(view.undecided))
            raise ActionError(f"cannot identify the processes of {names}: a file is not readable")
        return view


def default_owners(exporter_config: ExporterConfig) -> tuple[str, ...]:
    """Returns the accounts of the configured runs, and the account of this program."""
    workers = (worker for run in exporter_config.runs for worker in run.workers)
    named = {worker.match.user for worker in workers if worker.match.user is not None}
    return (*sorted(named), read_owner(os.getpid()))


def select_leftovers(
    orphans: Iterable[Holder], cleanup: GpuCleanup, *, now: float
) -> Iterable[Holder]:
    """Returns the `orphans` of `cleanup.owners` that may be terminated; `now` in Unix seconds."""
    for holder in orphans:
        age = now - start_timestamp(holder.process.identity)
        if (
            age >= cleanup.min_age
            and any(is_account(holder.owner, owner) for owner in cleanup.owners)
            and (cleanup.command is None or is_found(cleanup.command, holder.command))
        ):
            yield holder


def count_holds(holders: Iterable[Holder]) -> int:
    """Counts holds as the exporter does: one for each GPU of each process."""
    return sum(len(holder.gpus) for holder in holders)
