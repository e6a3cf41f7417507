"""Base class of actions through a manager of units, containers, programs, pods or jobs."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from trainwarden_exporter.processes.ancestry import descendants
from trainwarden_exporter.processes.procfs import read_processes
from trainwarden_remediator.actions.base import (
    Action,
    ActionState,
    Confirm,
    IsSaving,
    RecordStep,
    confirm_always,
    first_health_problem,
    never_saving,
    reading_processes,
    record_deferral_once,
)
from trainwarden_remediator.actions.termination import protection_reason
from trainwarden_remediator.config.restart_methods.base import RestartMethod
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import ActionDeferredError, ActionError, NotEligibleError
from trainwarden_remediator.model import TargetInstance, processes_among
from trainwarden_remediator.observation.model import ExporterState

Method = TypeVar("Method", bound=RestartMethod)

POLL_SECONDS = 1.0
"""Time between two checks whether a checkpoint is still being written, or the instance stopped."""

MAX_STOP_SECONDS = 600.0
"""How long a stop may take after the manager should have completed it."""


@dataclass(frozen=True, slots=True)
class ManagedInstance:
    """The current state of a manager's unit, container, program, pod or job.

    `identity` identifies one run of it, also after the run has ended. `stopped`: it was stopped on
    request. `blocker`: why the remediator must not act on it now, or ""; set too if `stopped`.
    `pid`: its first process, if that runs on this host.
    """

    identity: str
    running: bool
    stopped: bool = False
    blocker: str = ""
    pid: int | None = None


class ManagedAction(Action, Generic[Method]):
    """Restarts exactly one instance through its manager.

    The manager stops and starts it by its own rules. A stop by an operator, and anything that the
    manager is about to do, take precedence.
    """

    kind = "restart"

    restarts_atomically: ClassVar[bool]
    """Whether the manager completes a restart without the remediator. Then an instance that is
    stopped after a crash of the remediator was stopped by somebody else."""

    def __init__(
        self,
        target: Target,
        method: Method,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._method = method
        self._sleep = sleep
        self._clock = clock
        self._not_before: float | None = None
        self.writers_left: Callable[[], bool] = lambda: True
        """Whether a process is left that could write a checkpoint; true if that is not known."""

    @property
    def grace(self) -> float:
        return self._method.grace

    def take_over_from(self, predecessor: Action) -> None:
        if isinstance(predecessor, type(self)):
            self._not_before = predecessor._not_before  # noqa: SLF001 - same class

    @property
    def _is_deferred(self) -> bool:
        """Whether the manager has declined an action too recently for a retry."""
        return self._not_before is not None and self._clock() < self._not_before

    @abstractmethod
    def read_instance(self) -> ManagedInstance:
        """Returns the current instance. Raises ActionError if it is unknown or does not exist."""

    @abstractmethod
    def restart(self, instance: ManagedInstance, token: str, record_step: RecordStep) -> None:
        """Stops the instance if it runs, starts it, and returns after the start.

        Raises ActionError.
        """

    @abstractmethod
    def start(self, instance: ManagedInstance, token: str, record_step: RecordStep) -> None:
        """Starts an instance that does not run. Raises ActionError."""

    def find_instances(self) -> Collection[TargetInstance]:
        instance = self.read_instance()
        if instance.blocker:
            raise NotEligibleError(instance.blocker)
        return [instance.identity]

    def perform(
        self,
        action_token: str,
        record_step: RecordStep,
        intended: Collection[TargetInstance] | None = None,
        saving: IsSaving = never_saving,
        confirm: Confirm = confirm_always,
    ) -> Mapping[str, Any]:
        self._wait_while_saving(saving, record_step)
        confirm()
        instance = self.read_instance()
        if intended is not None and instance.identity not in intended:
            # It was restarted since the decision: the alert was not about the new instance.
            return {"killed": [], "started_by": "another", "processes": [instance.identity]}
        if instance.blocker:
            raise ActionDeferredError(f"refused: {instance.blocker}")
        if instance.pid is not None and (reason := self._protection_reason(instance.pid)):
            raise ActionError(f"refused: {reason}")
        confirm()  # again: the manager may have taken its time
        self.restart(instance, action_token, record_step)
        after = self.read_instance()  # a manager may take its time, or have been asked to cancel
        started = [after.identity] if after.running else []
        return {"killed": [], "started_by": "trainwarden", "processes": started}

    def finish(self, action_token: str, record_step: RecordStep) -> Mapping[str, Any]:
        instance = self.read_instance()
        if instance.running:
            return {"started_by": "another", "processes": [instance.identity]}
        if instance.blocker and (self.restarts_atomically or not instance.stopped):
            raise NotEligibleError(f"not started: {instance.blocker}")
        self.start(instance, action_token, record_step)
        return {"started_by": "trainwarden", "processes": [self.read_instance().identity]}

    def inspect(self, action_token: str, before: Collection[TargetInstance]) -> ActionState:
        instance = self.read_instance()
        if processes_among(before):
            return ActionState.REPLACED  # the restart method was changed in the configuration
        if instance.identity not in before:
            return ActionState.STARTED
        return ActionState.UNTOUCHED if instance.running else ActionState.ENDED

    def health_problem(self, exporter: ExporterState, began: float) -> str:
        return first_health_problem(exporter, self._target.keys, began)

    def _protection_reason(self, pid: int) -> str:
        """Returns why the process tree below `pid` must not be ended, or ""."""
        with reading_processes():
            processes = read_processes()
        tree = descendants(processes, [pid]) | {pid}
        return protection_reason([processes[one] for one in tree if one in processes], processes)

    def _wait_while_saving(self, saving: IsSaving, record_step: RecordStep) -> None:
        """Waits, for a limited time, while a checkpoint is written: the manager would not wait."""
        deadline = self._clock() + self._target.max_save_delay
        record_deferral = record_deferral_once(record_step, "stop_deferred")
        # A checkpoint whose writer has ended stays as it is.
        while self._clock() < deadline and self._may_run() and self.writers_left() and saving():
            record_deferral()
            self._sleep(POLL_SECONDS)

    def _may_run(self) -> bool:
        """Whether the instance runs, or the manager does not answer at the moment."""
        try:
            return self.read_instance().running
        except ActionError:
            return True

    def _wait_for_end(self, instance: ManagedInstance) -> bool:
        """Waits, for a limited time, until a stop that took too long has ended `instance`.

        The manager continues with it. Returns whether the instance has ended: left alone, it would
        look as if somebody else had stopped it.
        """
        deadline = self._clock() + MAX_STOP_SECONDS
        while self._clock() < deadline:
            with suppress(ActionError):  # asked again
                now = self.read_instance()
                if now.identity != instance.identity or not now.running:
                    return True
            self._sleep(POLL_SECONDS)
        return False
