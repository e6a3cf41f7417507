"""Executes a decision: from intent to verified outcome, also after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_remediator.actions.base import Action
from trainwarden_remediator.config.playbooks import Verify
from trainwarden_remediator.config.schema import Config
from trainwarden_remediator.config.targets import Budget, Target
from trainwarden_remediator.engine.action_runner import ActionRequest, ActionRunner
from trainwarden_remediator.engine.checkpoint_request import request_checkpoint
from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.engine.crash_recovery import CrashRecovery
from trainwarden_remediator.engine.permission import Permission, blocker_here
from trainwarden_remediator.evidence.triggers import EvidenceTrigger
from trainwarden_remediator.exceptions import (
    ActionError,
    IntentLostError,
    JournalError,
    NotEligibleError,
)
from trainwarden_remediator.holds.hold_file import Hold, read_holds
from trainwarden_remediator.journal.rows import OpenAction
from trainwarden_remediator.model import (
    Approval,
    Decision,
    Incident,
    TargetInstance,
    Verdict,
    processes_among,
)
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.observation.snapshot import Snapshot
from trainwarden_remediator.policy.agreement import refuse_other_processes
from trainwarden_remediator.policy.blockers import is_later


class Executor:
    """Executes decisions; `done` is called when an action has ended."""

    def __init__(self, context: EngineContext, *, done: Callable[[], None]) -> None:
        self._context = context
        self._journal = context.journal
        self._clock = context.clock
        self._tracker = context.tracker
        self._done = done
        self.action_runner = ActionRunner(context)
        self._crash_recovery = CrashRecovery(context, self.action_runner, self._start_blocker)
        self._actions: dict[WorkerKey, Action] = {}
        self._retired: list[Action] = []

    @property
    def _config(self) -> Config:
        return self._context.setup.config

    def reconfigure(self) -> None:
        """Uses the new configuration; an action in progress ends under the previous one."""
        predecessors, self._actions = self._actions, {}
        for key, action in predecessors.items():
            if (budget := self._config.budget(key)) is not None:
                self._actions[key] = self._new_action(budget)
                self._actions[key].take_over_from(action)
            self._retired.append(action)

    def reap_children(self, finished: Collection[WorkerKey]) -> None:
        """Reaps exited child processes, and records finished workers; blocks.

        `finished` are the workers that are already recorded.
        """
        for key in set(finished) - self._actions.keys():
            if (budget := self._config.budget(key)) is not None:
                self._action(budget)
        for key, action in self._actions.items():
            action.reap_children()
            with suppress(JournalError):  # retried in the next cycle
                self._record_worker_finished(key, action, known=key in finished)
        self._retired = [action for action in self._retired if action.reap_children()]

    def _record_worker_finished(self, key: WorkerKey, action: Action, *, known: bool) -> None:
        """Records that a worker has finished, or that it runs again."""
        finished = action.worker_finished()
        if finished is None and known:
            finished = not self._tracker.roots(key)
        if finished is not None and finished != known:
            self._journal.set_worker_finished(key, finished=finished)

    def current_holds(self) -> tuple[Hold, ...]:
        """Returns the holds in force; blocks."""
        return read_holds(self._config.hold_file, self._clock.now(), self._clock.since_boot())

    # from a decision on

    async def prepare(
        self,
        incident: Incident,
        decision: Decision,
        target: Budget,
        exporter: ExporterState | None,
        approval: Approval | None = None,
    ) -> tuple[Decision, Collection[TargetInstance]]:
        """Returns `decision` and the instances to terminate; or a decision to wait, and none.

        `exporter` is the observation that the decision rests on, `approval` the operator's consent
        without which the mode would be observe.
        """
        action = self._action(target)
        wait = replace(decision, verdict=Verdict.WAIT)
        try:
            processes = await self.action_runner.query(action, action.find_instances)
            if exporter is not None:
                prove = partial(action.proof_problem, exporter)
                if problem := await self.action_runner.query(action, prove):
                    now = self._clock.now()
                    refusal = refuse_other_processes(
                        incident, decision, problem, observes=False, now=now
                    )
                    return refusal, ()
        except NotEligibleError as error:
            return replace(wait, reason="managed_elsewhere", detail=str(error)), ()
        except ActionError as error:
            return replace(wait, reason="observation_failed", detail=str(error)), ()
        if approval is not None and self._has_later(target, processes, approval):
            detail = "its processes have changed since"
            return replace(wait, reason="approval_void", detail=detail), ()
        if action.only_terminates and not processes:
            return replace(wait, reason="no_candidate"), ()
        return decision, processes

    def _has_later(
        self, target: Budget, processes: Collection[TargetInstance], approval: Approval
    ) -> bool:
        """Whether a process started after it was proposed to end it; its children come and go."""
        roots = {root for key in target.keys for root in self._tracker.roots(key)}
        checked = roots.intersection(processes) or processes_among(processes)
        return any(is_later(start_timestamp(one), approval) for one in checked)

    async def start(
        self,
        incident: Incident,
        decision: Decision,
        processes: Collection[TargetInstance],
        snapshot: Snapshot | None,
        group: asyncio.TaskGroup,
    ) -> None:
        """Records the intent and starts the action as a task of `group`.

        Raises JournalError, and IntentLostError if memory runs out after the intent was recorded.
        """
        if decision.target is None:
            about = WorkerKey(incident.run, incident.worker)
            await asyncio.to_thread(self._journal.record_page, incident.id, about, decision.rung)
            return
        try:
            action_request = await self._record_intent(
                incident, decision, decision.target, processes, snapshot
            )
            before = EvidenceTrigger(
                *("act", incident.id, action_request.key, incident.run, action_request.number),
                processes=processes_among(processes),
                snapshot=snapshot,
            )
            permission = Permission(
                *(self._context, incident, decision.target, snapshot),
                need=decision.need,
            )
            group.create_task(
                self._run_action(action_request, processes, before, permission),
                name=f"action {action_request.number}",
            )
        except MemoryError as error:
            raise IntentLostError("out of memory after an intent may have been recorded") from error

    async def _record_intent(
        self,
        incident: Incident,
        decision: Decision,
        target: Budget,
        processes: Collection[TargetInstance],
        snapshot: Snapshot | None,
    ) -> ActionRequest:
        action = self._action(target)
        exporter = snapshot.exporter if snapshot else None
        run = exporter.runs.get(target.key.run, RunState()) if exporter else RunState()
        number = await asyncio.to_thread(
            self._journal.record_intent,
            *(incident.id, target.key, action.kind, processes),
            rung=decision.rung,
            step=run.step,
            checkpoint=run.checkpoint,
            attempt=None if decision.attempt is None else (decision.attempt, target.attempts),
            account=target.account,
            interrupted_since=None if run.interruption_end else run.interruption_start,
        )
        request = self._action_request(number, incident.remediation, decision.rung, target, run)
        return replace(request, instances=processes)

    async def _run_action(
        self,
        action_request: ActionRequest,
        processes: Collection[TargetInstance],
        before: EvidenceTrigger,
        permission: Permission,
    ) -> None:
        await self.take_evidence(before)
        why = await permission.blocker()
        why = why or await self._request_checkpoint(action_request, processes, permission)
        why = why or await permission.blocker()
        if why := why or await self._config_change(action_request):
            # Decided again in the next cycle, not at once: the cause probably still exists.
            await self.action_runner.record(
                self._journal.record_result, action_request.number, "interrupted", found=why
            )
            return
        perform = action_request.action.perform
        if await self.action_runner.run(
            action_request,
            lambda action_token, record_step, saving: perform(
                action_token, record_step, processes, saving, permission.confirm
            ),
        ):
            self._done()

    async def _request_checkpoint(
        self,
        action_request: ActionRequest,
        processes: Collection[TargetInstance],
        permission: Permission,
    ) -> str:
        """Requests a final checkpoint if one is configured.

        Returns why the action must not go ahead, or "".
        """
        target = self._config.budget(action_request.key)
        request = target.save if isinstance(target, Target) else None
        if request is None or not processes:
            return ""
        roots = [
            root
            for key in action_request.keys
            for root in self._tracker.roots(key)
            if root in processes
        ]
        try:
            found = await request_checkpoint(
                *(request, action_request.key, roots, action_request.checkpoint),
                instances=roots or processes,
                context=self._context,
                confirm=permission.confirm,
            )
        except JournalError as error:
            return f"no checkpoint requested: {error}"
        if found is None:
            return ""
        about = {"run": action_request.key.run, "worker": action_request.key.worker}
        # The request was sent; a failing journal must not lead to a second one.
        await self.action_runner.record(
            self._journal.record_event, "save_result", **about, came=found.text, sent=found.sent
        )
        # A worker may exit once it has saved: that is no reason to refuse the restart.
        with suppress(ActionError):
            action = action_request.action
            await self.action_runner.query(action, action.find_instances)
        return ""

    async def _config_change(self, action_request: ActionRequest) -> str:
        """Returns how exporter.yml has changed since the decision, or "" (harm 29)."""
        if (reread := self._context.reread_exporter_file) is None:
            return ""
        problem = await reread()
        run = action_request.key.run
        if action_request.workers_hash == self._context.setup.workers_hash_of(run):
            return problem
        return problem or "the workers in exporter.yml have changed since the decision"

    def _action_request(
        self, number: int, remediation: str, rung: int, target: Budget, run: RunState | None
    ) -> ActionRequest:
        """Returns the request of an action; `run` is the progress of its run at the intent."""
        playbook = self._config.playbook(remediation)
        known = playbook is not None and rung < len(playbook.ladder)
        return ActionRequest(
            number,
            target.key,
            self._action(target),
            playbook.ladder[rung].verify if playbook and known else Verify(),
            run.checkpoint if run else None,
            restartable=frozenset(key for one in self._config.targets for key in one.keys),
            protected=any(map(self._context.setup.is_trainer, target.keys)),
            keys=target.keys,
            step=run.step if run else None,
            steps_repeated=run.steps_repeated if run else None,
            proved=run.proved_step if run else None,
            workers_hash=self._context.setup.workers_hash_of(target.key.run),
            condition=playbook.condition if playbook else None,
            progress_at=run.progress_at if run else None,
        )

    def _action(self, target: Budget) -> Action:
        if target.key not in self._actions:
            self._actions[target.key] = self._new_action(target)
        return self._actions[target.key]

    def _new_action(self, target: Budget) -> Action:
        return self._context.action_for(target, self._context.setup, self._tracker)

    async def take_evidence(self, trigger: EvidenceTrigger) -> None:
        """Records the state of the host as evidence."""
        if self._context.evidence is not None:
            await self._context.evidence(trigger, self._context.setup)

    # after a crash

    async def recover(self, left: OpenAction) -> None:
        """Completes an action that a crash interrupted."""
        target = self._config.budget(left.key)
        action_request = None
        if target is not None:
            action_request = self._action_request(
                *(left.id, left.remediation, left.rung, target),
                RunState(step=left.step, checkpoint=left.checkpoint),
            )
            action_request = replace(action_request, instances=left.processes)
        await self._crash_recovery.recover(left, action_request)
        self._done()

    def _start_blocker(self, left: OpenAction) -> str:
        """Returns why a terminated worker must not be started now, or ""; blocks."""
        if self._clock.now() - left.intent_at > self._config.alert_stale_after:
            return "too long ago"
        if (target := self._config.budget(left.key)) is None:
            return "no longer a configured target"
        return blocker_here(self._context, target, left.incident)
