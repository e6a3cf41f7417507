"""Restarts a worker that is a plain process: terminates its tree, then starts its command."""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.gpu.snapshot import GpuSnapshot, TakeGpuSnapshot, take_gpu_snapshot
from trainwarden_exporter.processes.procfs import Identity, Process, read_processes
from trainwarden_exporter.run_specs import checkpoint_specs
from trainwarden_remediator.actions.base import (
    Action,
    ActionState,
    Confirm,
    IsSaving,
    RecordStep,
    confirm_always,
    first_health_problem,
    never_saving,
    record_deferral_once,
    record_kill,
)
from trainwarden_remediator.actions.child_exits import ChildExits
from trainwarden_remediator.actions.damaged_checkpoint import DamagedCheckpoints
from trainwarden_remediator.actions.descendants import DescendantTracker
from trainwarden_remediator.actions.earlier_start import earlier_starts, withdraw
from trainwarden_remediator.actions.gpu_memory import (
    describe_unreleased,
    read_gpus,
    uses_gpu,
    wait_for_memory,
)
from trainwarden_remediator.actions.ports import ports_in_use, wait_until_free
from trainwarden_remediator.actions.process_count import (
    exporter_problem,
    selector_problem,
    surplus_problem,
)
from trainwarden_remediator.actions.save_check import SaveCheck, SaveWait
from trainwarden_remediator.actions.spawn import (
    ACTION_VARIABLE,
    find_started,
    has_process_with_token,
    start_process,
)
from trainwarden_remediator.actions.start_account import StartAccount, with_account
from trainwarden_remediator.actions.termination import is_alive, protection_reason, terminate
from trainwarden_remediator.actions.worker_processes import WorkerProcesses, WorkerProcessFinder
from trainwarden_remediator.config.restart_methods.process import ProcessTarget
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import ActionError, JournalError, ProcessesDifferError
from trainwarden_remediator.model import TargetInstance, processes_among
from trainwarden_remediator.observation.model import ExporterState

__all__ = ["ACTION_VARIABLE", "ProcessAction"]

log = logging.getLogger(__name__)

LAUNCHER_POLL_SECONDS = 0.5
"""Seconds between two looks whether a launcher has ended, whose worker was ended."""

SAVE_LOOK_INTERVAL_SECONDS = 0.5
"""Seconds between two looks for a checkpoint that is being written."""


def is_below(path: str, folder: Path) -> bool:
    """Whether `path` lies below `folder`, by its name."""
    return ".." not in Path(path).parts and Path(path).is_relative_to(folder)


class ProcessAction(Action):
    """Terminates the processes that the worker's selector finds, and starts the configured command.

    Also terminates descendants that survive their root. Waits for the worker's ports and GPU memory
    to become free before the start.
    """

    kind = "restart"

    def __init__(
        self,
        target: Target,
        process: ProcessTarget,
        setup: Setup,
        tracker: DescendantTracker,
        *,
        gpu_reader: TakeGpuSnapshot = take_gpu_snapshot,
    ) -> None:
        self._target = target
        self._workers = {key: setup.workers[key] for key in target.keys if key in setup.workers}
        self._process = with_account(process, [one.match for one in self._workers.values()])
        self._start_account = StartAccount(self._process)
        self._device_root = setup.exporter_config.gpu.device_root
        finder = WorkerProcessFinder(target.keys, setup.selectors, tracker)
        self._find_processes, self._new_descendants = finder.find, finder.new_descendants
        self._tracker = tracker
        self._read_gpus = partial(read_gpus, gpu_reader, setup.exporter_config)
        run = setup.run_config(target.run)
        protected = run is not None and any(map(setup.is_trainer, target.keys))
        self._save_check = SaveCheck(checkpoint_specs(run) if run and protected else ())
        self._children: list[subprocess.Popen[bytes]] = []
        self._child_exits = ChildExits()
        self._last_child: subprocess.Popen[bytes] | None = None
        self._run_folders = [spec.location.path for spec in checkpoint_specs(run)] if run else []
        self._damaged_checkpoints = DamagedCheckpoints(checkpoint_specs(run) if run else ())
        self._damaged: frozenset[str] = frozenset()
        """The damaged checkpoints at the last observation of the exporter."""
        self._checkpoint = ""
        """The newest proved checkpoint at the last observation of the exporter."""
        self._decided_roots: frozenset[Identity] = frozenset()
        """The roots at the last decision."""

    def find_instances(self) -> Collection[TargetInstance]:
        found = self._find_processes()
        self._decided_roots = frozenset(found.roots)
        self._start_account.observe(found.tree.roots)
        return [process.identity for process in found.alive]

    def update_from(self, exporter: ExporterState) -> None:
        run = exporter.runs.get(self._target.run)
        path = "" if run is None else run.proved_checkpoint
        # A false page could otherwise choose which file the account of the run loads.
        inside = any(is_below(path, folder) for folder in self._run_folders)
        self._checkpoint = path if inside else ""
        self._damaged = frozenset() if run is None else run.damaged_checkpoints

    def proof_problem(self, exporter: ExporterState) -> str:
        self.update_from(exporter)
        found = self._find_processes()
        return self._own_problem(found) or exporter_problem(
            found.trees, self._target.keys, exporter
        )

    @property
    def grace(self) -> float:
        return self._process.grace

    def perform(
        self,
        action_token: str,
        record_step: RecordStep,
        intended: Collection[TargetInstance] | None = None,
        saving: IsSaving = never_saving,
        confirm: Confirm = confirm_always,
    ) -> Mapping[str, Any]:
        now = self._find_processes()
        roots = frozenset(now.roots)
        if intended is not None and roots and roots.isdisjoint(intended):
            # It was restarted since the decision: the alert was not about the new processes.
            pids = [root.pid for root in now.roots]
            return {"killed": [], "started_by": "another", "processes": pids}
        if intended is not None and roots != self._decided_roots:
            raise ProcessesDifferError(f"refused: {_describe_change(self._decided_roots, roots)}")
        if problem := self._own_problem(now):
            raise ProcessesDifferError(f"refused: {problem}")
        survivors = [one for one in now.survivors if intended is None or one.identity in intended]
        members = [*now.tree.members, *survivors]
        if reason := protection_reason(members, read_processes()):
            raise ActionError(f"refused: {reason}")
        facts: Mapping[str, Any] = {"killed": []}
        if alive := [process.pid for process in members if process.alive]:

            def prepare() -> None:
                self._wait_while_writing(members, record_step)
                confirm()
                record_step("stop", processes=alive)
                # With all pidfds open: what is counted here is what is signalled (harm 29).
                last = self._find_processes()
                problem = _describe_change(roots, last.roots) or self._own_problem(last)
                if problem:
                    raise ProcessesDifferError(f"refused: {problem}")

            record_deferral = record_deferral_once(record_step, "kill_deferred")

            def defer_kill() -> bool:
                if is_saving := saving():
                    record_deferral()
                return is_saving

            on_kill = partial(record_kill, record_step, grace=self.grace)
            facts = self._terminate(
                now.roots, members, prepare, confirm, defer_kill, on_kill=on_kill
            )
        else:
            confirm()
        return {**facts, **self.finish(action_token, record_step)}

    def _wait_while_writing(self, members: Sequence[Process], record_step: RecordStep) -> None:
        """Waits, for a limited time, while one of `members` writes a checkpoint (harm 17)."""
        deadline = time.monotonic() + self._target.max_save_delay
        wait = SaveWait(self._save_check)
        record_deferral = record_deferral_once(record_step, "stop_deferred")
        while alive := [one.pid for one in members if is_alive(one.identity)]:
            if time.monotonic() >= deadline or not wait.goes_on(alive):
                return
            record_deferral()
            time.sleep(SAVE_LOOK_INTERVAL_SECONDS)

    def _own_problem(self, found: WorkerProcesses) -> str:
        """Returns why the processes found may not all be this target's, or "" (harm 29)."""
        return surplus_problem(found.trees, self._workers) or selector_problem(
            found.trees, self._workers, self._process
        )

    def finish(self, action_token: str, record_step: RecordStep) -> Mapping[str, Any]:
        deadline = time.monotonic() + self.grace
        while True:
            found = self._find_processes()
            if others := [root.pid for root in found.roots]:
                # Something else has restarted this worker; a second copy would do harm.
                return {"started_by": "another", "processes": others}
            lost = [child.pid for child in self._children if child.poll() is None]
            if not (lost := lost or find_started(action_token, self._process.start)):
                break
            if open_shells := [shell.pid for shell in found.shells if shell.pid in lost]:
                self._end_shells(open_shells, record_step)
                continue
            # Perhaps a launcher, which cleans up after the worker below it has ended.
            if time.monotonic() >= deadline:
                # Another start would not help: `match` would not find that process either.
                raise ActionError(
                    f"already started {lost}, which still runs and `match` does not find"
                )
            time.sleep(LAUNCHER_POLL_SECONDS)
        self._start_account.check()
        process = self._process.with_checkpoint(self._checkpoint)
        if process.needs_checkpoint:
            raise ActionError("the newest proved checkpoint is not known")
        if process.set_damaged_aside:
            self._set_damaged_aside(record_step)
        try:
            record_step("start", command=list(process.start))
        except JournalError as error:
            # Its token shows the start, and the worker must not stay down while the disk is full.
            log.error("journal failed", extra={"error": str(error)})
        child = start_process(process, action_token)
        self._children.append(child)
        with suppress(ActionError):  # what cannot be observed is no reason to end it
            if earlier := earlier_starts(child, self._find_processes().roots):
                self._child_exits.expect_exit([child.pid])
                withdraw(child.pid, self.grace)
                return {"started_by": "another", "processes": [one.pid for one in earlier]}
        self._last_child = child
        return {"started_by": "trainwarden", "processes": [child.pid]}

    def _end_shells(self, pids: Sequence[int], record_step: RecordStep) -> None:
        """Ends shells of an earlier `start`, which stay open though their worker has ended."""
        record_step("stop", processes=pids)
        self._child_exits.expect_exit(pids)
        for pid in pids:
            withdraw(pid, self.grace)

    def _set_damaged_aside(self, record_step: RecordStep) -> None:
        account = self._start_account.uid
        with suppress(JournalError):  # a rename that is in no journal is not made; the start is
            self._damaged_checkpoints.set_aside(
                self._checkpoint, self._damaged, account, record_step
            )

    def inspect(self, action_token: str, before: Collection[TargetInstance]) -> ActionState:
        alive = [member for member in self._find_processes().tree.members if member.alive]
        # Among all processes: the new process may not match the worker's selector yet.
        if has_process_with_token(action_token):
            return ActionState.STARTED
        # Checked one by one: no selector finds a child that survived its root.
        if any(map(is_alive, processes_among(before))):
            return ActionState.UNTOUCHED
        other = len(processes_among(before)) < len(before)
        # `other`: the restart method was changed in the configuration.
        return ActionState.REPLACED if alive or other else ActionState.ENDED

    def health_problem(self, exporter: ExporterState, began: float) -> str:
        return first_health_problem(exporter, self._target.keys, began)

    def take_over_from(self, predecessor: Action) -> None:
        if isinstance(predecessor, ProcessAction):
            self._children = predecessor._children  # noqa: SLF001 - same class
            self._child_exits = predecessor._child_exits  # noqa: SLF001
            self._last_child = predecessor._last_child  # noqa: SLF001
            self._decided_roots = predecessor._decided_roots  # noqa: SLF001
            self._checkpoint = predecessor._checkpoint  # noqa: SLF001
            self._damaged = predecessor._damaged  # noqa: SLF001
            self._start_account.take_over_from(predecessor._start_account)  # noqa: SLF001

    def worker_finished(self) -> bool | None:
        return self._child_exits.worker_finished

    def start_failure(self) -> str:
        # Status 0 is no failure: the process may be a launcher.
        status = None if self._last_child is None else self._last_child.poll()
        if not status:
            return ""
        return f"it exited with status {status}" if status > 0 else f"signal {-status} ended it"

    def reap_children(self) -> bool:
        # In place: a restart may append to the list at the same time.
        for child in tuple(self._children):
            if child.poll() is not None:
                self._children.remove(child)
                self._child_exits.record_exit(child)
            elif not self._child_exits.is_worker(child):
                # The roots of the last observation: reading processes here could block.
                roots = self._tracker.roots(self._target.key)
                self._child_exits.observe_roots(child, {root.pid for root in roots})
        if not self._children:
            self._child_exits.observe_others(
                {root.pid for root in self._tracker.roots(self._target.key)}
            )
        return bool(self._children)

    def _terminate(
        self,
        roots: Collection[Identity],
        members: Collection[Process],
        prepare: Callable[[], None],
        confirm: Callable[[], None],
        defer_kill: Callable[[], bool],
        *,
        on_kill: Callable[[Collection[int]], None],
    ) -> Mapping[str, Any]:
        """Terminates the worker and waits for its ports and GPU memory. Returns journal facts."""
        identities = [process.identity for process in members]

        def confirm_last() -> None:
            confirm()
            self._child_exits.expect_exit([process.pid for process in members if process.alive])

        ports = ports_in_use(identities)
        before = self._gpus_in_use(identities)
        killed = terminate(
            roots,
            identities,
            grace=self.grace,
            prepare=prepare,
            confirm=confirm_last,
            find_new=self._new_descendants,
            defer_kill=defer_kill,
            max_defer_seconds=self._target.max_save_delay,
            on_kill=on_kill,
        )
        facts: dict[str, Any] = {"killed": list(killed)}
        taken = wait_until_free(ports, self._process.port_release_timeout)
        if taken and not self._find_processes().roots:
            numbers = ", ".join(map(str, sorted(taken)))
            raise ActionError(
                f"the worker has ended, but port {numbers} is taken by another process"
            )
        if before is not None:
            pids = {identity.pid for identity in identities}
            # No wait if the GPUs cannot be read; unreleased memory may not be needed.
            with suppress(CollectError, TimeoutError):
                unreleased = wait_for_memory(
                    self._read_gpus, before, pids, self._process.gpu_memory_release_timeout
                )
                if unreleased:
                    facts["late"] = describe_unreleased(unreleased)
        return facts

    def _gpus_in_use(self, identities: Collection[Identity]) -> GpuSnapshot | None:
        """Returns the state of the GPUs if these processes use any and the driver responds."""
        pids = [identity.pid for identity in identities]
        if uses_gpu(pids, self._device_root):
            with suppress(CollectError, TimeoutError):
                return self._read_gpus()
        return None


def _describe_change(before: Collection[Identity], now: Collection[Identity]) -> str:
    """Returns which root processes have started or ended, or ""."""
    started, ended = set(now) - set(before), set(before) - set(now)
    parts = [
        f"process {', '.join(str(one.pid) for one in sorted(some))} has {what} since the decision"
        for some, what in ((started, "started"), (ended, "ended"))
        if some
    ]
    return ", ".join(parts)
