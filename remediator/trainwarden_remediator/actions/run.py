"""Restarts a worker through the `trainwarden run` that started it.

The proofs are those of a plain process: the processes found are the ones expected, of the announced
account, and in no save. What is started is what `trainwarden run` was given; the remediator sends
no command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from trainwarden_exporter.processes.matching import Matcher, ProcessTree
from trainwarden_exporter.processes.procfs import Identity, read_processes
from trainwarden_exporter.processes.run_socket import ask_run
from trainwarden_exporter.run_specs import checkpoint_specs
from trainwarden_exporter.runtime.formatting import on_one_line
from trainwarden_remediator.actions.base import (
    Action,
    ActionState,
    Confirm,
    IsSaving,
    RecordStep,
    action_errors,
    confirm_always,
    first_health_problem,
    never_saving,
    reading_processes,
    record_deferral_once,
    record_kill,
)
from trainwarden_remediator.actions.process_count import exporter_problem, surplus_problem
from trainwarden_remediator.actions.save_check import SaveCheck, SaveWait
from trainwarden_remediator.actions.termination import is_alive, protection_reason
from trainwarden_remediator.config.restart_methods.run import (
    RESTARTS_ITSELF,
    WRAPPER_ENDED,
    RunTarget,
    has_ended,
)
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import (
    ActionDeferredError,
    ActionError,
    JournalError,
    NotEligibleError,
    ProcessesDifferError,
)
from trainwarden_remediator.journal.event_text import describe_reason
from trainwarden_remediator.model import TargetInstance, processes_among
from trainwarden_remediator.observation.model import ExporterState

STATUS_SECONDS = 5.0
"""How long `trainwarden run` may take to report its status."""
RESTART_SECONDS = 30.0
"""How long it may take beyond the grace: SIGKILL, and the start."""
SAVING_POLL_SECONDS = 1.0
MAX_ERROR = 500
"""Characters of an error that are recorded."""
MAX_PIDS = 100
"""Processes of an announced run that are recorded as killed."""


class RunAction(Action):
    """Asks `trainwarden run` to end its command and to start it again."""

    kind = "restart"

    def __init__(self, target: Target, run: RunTarget, setup: Setup) -> None:
        self._target = target
        self._run = run
        self._workers = {key: one for key, one in setup.workers.items() if key in target.keys}
        # All selectors: a process that belongs to another worker does not belong to this one.
        self._matcher = Matcher(setup.selectors)
        config = setup.run_config(target.run)
        protected = config is not None and setup.is_trainer(target.key)
        self._save_check = SaveCheck(
            checkpoint_specs(config) if config is not None and protected else ()
        )

    @property
    def grace(self) -> float:
        return self._run.grace

    def find_instances(self) -> Collection[TargetInstance]:
        tree = self._find_processes()
        if not _roots(tree) or has_ended(self._run.wrapper):
            self._read_status()
        return [one.identity for one in tree.members if one.alive]

    def proof_problem(self, exporter: ExporterState) -> str:
        trees = {self._target.key: self._find_processes()}
        return surplus_problem(trees, self._workers) or exporter_problem(
            trees, self._target.keys, exporter
        )

    def perform(
        self,
        action_token: str,
        record_step: RecordStep,
        intended: Collection[TargetInstance] | None = None,
        saving: IsSaving = never_saving,
        confirm: Confirm = confirm_always,
    ) -> Mapping[str, Any]:
        tree = self._find_processes()
        roots = _roots(tree)
        if intended is not None and roots and roots.isdisjoint(intended):
            # It was restarted since the decision: the alert was not about the new process.
            return {"killed": [], "started_by": "another", "processes": _pids(roots)}
        if not roots:
            confirm()
            self._read_status_before_any_change()
            return self.finish(action_token, record_step)
        if reason := protection_reason(tree.members, read_processes()):
            raise ActionError(f"refused: {reason}")
        self._wait_while_writing(tree, record_step)
        confirm()
        record_step("stop", processes=[one.pid for one in tree.members if one.alive])
        # What is compared here is what is named in the request (harm 29).
        last = self._find_processes()
        status = self._read_status_before_any_change()
        announced = Identity(status["pid"], status["start_ticks"])
        if problem := surplus_problem({self._target.key: last}, self._workers):
            raise ProcessesDifferError(f"refused: {problem}")
        if _roots(last) != roots or roots != {announced}:
            raise ProcessesDifferError(
                f"refused: trainwarden run has process {announced.pid}, "
                f"`match` finds {', '.join(map(str, _pids(_roots(last)))) or 'none'}"
            )
        confirm()  # again: the answers above may have taken their time
        return self._restart(announced, status, record_step)

    def finish(self, action_token: str, record_step: RecordStep) -> Mapping[str, Any]:
        if roots := _roots(self._find_processes()):
            # Something else has restarted this worker; a second copy would do harm.
            return {"killed": [], "started_by": "another", "processes": _pids(roots)}
        status = self._read_status()
        return self._restart(Identity(status["pid"], status["start_ticks"]), status, record_step)

    def inspect(self, action_token: str, before: Collection[TargetInstance]) -> ActionState:
        if any(map(is_alive, processes_among(before))):
            return ActionState.UNTOUCHED
        return ActionState.STARTED if _roots(self._find_processes()) else ActionState.ENDED

    def health_problem(self, exporter: ExporterState, began: float) -> str:
        return first_health_problem(exporter, self._target.keys, began)

    def _restart(
        self, announced: Identity, status: Mapping[str, Any], record_step: RecordStep
    ) -> Mapping[str, Any]:
        taken: dict[str, list[int]] = {}

        def record(step: str, pids: list[int]) -> None:
            if step in taken:
                return
            taken[step] = pids
            if step == "kill":
                record_kill(record_step, pids, self.grace)
            elif step == "start":
                with suppress(JournalError):  # recorded as a stop; the worker must not stay down
                    record_step("start", command=[str(one) for one in status.get("argv", ())])

        def follow(news: Mapping[str, Any]) -> None:
            pids = news.get("processes")
            found = [one for one in pids if _is_pid(one)] if isinstance(pids, list) else []
            record(str(news["progress"])[:MAX_ERROR], found[:MAX_PIDS])

        answer = self._ask(
            self.grace + RESTART_SECONDS,
            command="restart",
            grace=self.grace,
            pid=announced.pid,
            start_ticks=announced.start_ticks,
            on_progress=follow,
        )
        if not answer.get("ok"):
            error = on_one_line(str(answer.get("error", "no reason given"))[:MAX_ERROR])
            raise ActionError(f"trainwarden run: {error}")
        record("start", [])  # of a `trainwarden run` of before, which tells only the end
        pid, killed = answer.get("pid"), taken.get("kill", [])
        processes = [pid] if _is_pid(pid) else []
        return {"killed": killed, "started_by": "trainwarden", "processes": processes}

    def _read_status(self) -> Mapping[str, Any]:
        """Raises NotEligibleError if nobody can start the command again, or an operator ended it.

        Raises ActionError if the answer is malformed.
        """
        try:
            answer = self._ask(STATUS_SECONDS, command="status")
        except ActionError as error:
            message = f"its `trainwarden run` does not answer ({error}): start the run again"
            if has_ended(self._run.wrapper):
                message = WRAPPER_ENDED
            raise NotEligibleError(message) from error
        status = answer.get("status")
        if (
            not isinstance(status, dict)
            or not all(_is_pid(status.get(name)) for name in ("pid", "start_ticks"))
            or not isinstance(status.get("argv", []), list)
        ):
            raise ActionError("trainwarden run: malformed status")
        if status.get("state") == "stopped":
            reason = "ended_with_run" if status.get("ended_with_run") else "stopped"
            raise ActionDeferredError(describe_reason(reason))
        if status.get("state") == "failed" and status.get("restart") == "on-failure":
            raise NotEligibleError(RESTARTS_ITSELF)
        if status.get("state") not in ("running", "failed"):
            raise NotEligibleError(f"the run is {status.get('state')}")
        return status

    def _read_status_before_any_change(self) -> Mapping[str, Any]:
        """As _read_status; raises ActionDeferredError if the run has changed since the decision."""
        try:
            return self._read_status()
        except NotEligibleError as error:
            raise ActionDeferredError(str(error)) from error

    def _ask(
        self,
        timeout: float,
        on_progress: Callable[[Mapping[str, Any]], None] | None = None,
        **request: object,
    ) -> Mapping[str, Any]:
        owner, progress = self._run.owner, on_progress
        with action_errors(str(self._run.socket), OSError, ValueError):
            return ask_run(
                self._run.socket, owner=owner, timeout=timeout, on_progress=progress, **request
            )

    def _wait_while_writing(self, tree: ProcessTree, record_step: RecordStep) -> None:
        """Waits, for a limited time, while a process of `tree` writes a checkpoint (harm 17).

        What the exporter sees was asked for the decision: of a run that saves often it is a save
        without end.
        """
        deadline = time.monotonic() + self._target.max_save_delay
        wait = SaveWait(self._save_check)
        record_deferral = record_deferral_once(record_step, "stop_deferred")
        while alive := [one.pid for one in tree.members if is_alive(one.identity)]:
            if time.monotonic() >= deadline or not wait.goes_on(alive):
                return
            record_deferral()
            time.sleep(SAVING_POLL_SECONDS)

    def _find_processes(self) -> ProcessTree:
        with reading_processes():
            trees = self._matcher.find()
        if self._target.key not in trees:
            raise ActionError("the run is no longer announced")
        return trees[self._target.key]


def _roots(tree: ProcessTree) -> set[Identity]:
    return {root.identity for root in tree.roots if root.alive}


def _is_pid(value: object) -> bool:
    """Whether it is a pid or a start time, and no number of any length."""
    return isinstance(value, int) and 0 <= value < 1 << 63


def _pids(roots: Collection[Identity]) -> list[int]:
    return sorted(root.pid for root in roots)
