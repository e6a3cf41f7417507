"""The interface of actions, and the health check of restarted workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, Literal, Protocol

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.formatting import format_size
from trainwarden_remediator.exceptions import ActionError, JournalError
from trainwarden_remediator.model import TargetInstance
from trainwarden_remediator.observation.model import START_TOLERANCE_SECONDS, ExporterState


class ActionState(StrEnum):
    """The state of a target after an interrupted action."""

    UNTOUCHED = "untouched"
    """An instance that the action intended to end still runs."""
    ENDED = "ended"
    """All such instances have ended, and none was started in their place."""
    STARTED = "started"
    """The instance that the action starts runs."""
    REPLACED = "replaced"
    """An instance runs that neither ran before the action nor was started by it."""


IsSaving = Callable[[], bool]
"""Whether the target is writing a checkpoint now; may block for some seconds."""


def never_saving() -> bool:
    return False


Confirm = Callable[[], None]
"""Raises ActionDeferredError if the action must not be taken any more; may block for some
seconds."""


def confirm_always() -> None: ...


class RecordStep(Protocol):
    """Records a step of an action in the journal before the step is taken."""

    def __call__(self, step: str, **facts: Any) -> None: ...


class Action(ABC):
    """Changes one target by one restart method.

    All methods may block, except `health_problem`, which is pure. Callers do not call methods
    concurrently, except `reap_children`, which may be called at any time.
    """

    kind: ClassVar[str]
    """The name of this kind of action in the journal and the metrics."""

    only_terminates: ClassVar[bool] = False
    """Whether the action has nothing to do without processes to end."""

    @property
    @abstractmethod
    def grace(self) -> float:
        """Seconds that an instance has to stop before it is killed."""

    @abstractmethod
    def find_instances(self) -> Collection[TargetInstance]:
        """Returns the instances that the action would end now.

        Raises NotEligibleError if the action must not act on the target now, and ActionError if
        that is unknown.
        """

    def update_from(self, exporter: ExporterState) -> None:  # noqa: B027 - most need nothing of it
        """Remembers what the next start needs of an observation; pure."""

    def proof_problem(self, exporter: ExporterState) -> str:
        """Returns how the target's processes differ from what the exporter shows, or "".

        The manager of a target identifies its instances itself, so most actions have no doubt.
        Raises ActionError if that is unknown.
        """
        del exporter
        return ""

    @abstractmethod
    def perform(
        self,
        action_token: str,
        record_step: RecordStep,
        intended: Collection[TargetInstance] | None = None,
        saving: IsSaving = never_saving,
        confirm: Confirm = confirm_always,
    ) -> Mapping[str, Any]:
        """Carries out the action and returns facts for the journal.

        Processes that the action starts, and no others, carry `action_token`. The action ends only
        `intended` instances, those of the moment of the decision (None: all current instances). It
        defers a kill for a limited time while the target is `saving`. Calls `confirm` after all
        waits, and again right before its first change. Raises ActionError if the action fails, and
        ActionDeferredError, before any change, if `confirm` does or if the target's processes are
        not the intended ones.
        """

    @abstractmethod
    def inspect(self, action_token: str, intended: Collection[TargetInstance]) -> ActionState:
        """Returns the state of the target after the interrupted action of `action_token`.

        `intended`: the instances that the action intended to end. Raises ActionError if the state
        is unknown.
        """

    @abstractmethod
    def finish(self, action_token: str, record_step: RecordStep) -> Mapping[str, Any]:
        """Completes an action that was interrupted after it had ended its instances.

        Returns and raises like `perform`.
        """

    @abstractmethod
    def health_problem(self, exporter: ExporterState, began: float) -> str:
        """Returns why an action that began at `began` (Unix seconds) has not succeeded, or ""."""

    def take_over_from(self, predecessor: Action) -> None:  # noqa: B027 - most have nothing to take over
        """Takes over the state of a predecessor of an earlier configuration."""

    def worker_finished(self) -> bool | None:
        """Whether the worker that the action started last exited with status 0; None if unknown."""
        return None

    def start_failure(self) -> str:
        """Returns how the process that the action started last has failed, or "" if unknown."""
        return ""

    def reap_children(self) -> bool:
        """Reaps exited child processes. Returns whether child processes are left."""
        return False


@contextmanager
def action_errors(operation: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raises an error of these kinds in its body as an ActionError about `operation`."""
    try:
        yield
    except kinds as error:
        raise ActionError(f"{operation}: {error}") from error


def record_deferral_once(
    record_step: RecordStep, step: Literal["stop_deferred", "kill_deferred"]
) -> Callable[[], None]:
    """Returns a function that records, at its first call, that a checkpoint defers the action."""

    @cache
    def record() -> None:
        with suppress(JournalError):
            record_step(step)

    return record


def record_kill(record_step: RecordStep, pids: Collection[int], grace: float) -> None:
    """Records that SIGKILL is sent to what SIGTERM did not end within `grace` seconds."""
    with suppress(JournalError):  # what ignores SIGTERM must not live because the disk is full
        record_step("kill", processes=list(pids), seconds=grace)


def reading_processes() -> AbstractContextManager[None]:
    """Raises a CollectError of its body as an ActionError."""
    return action_errors("cannot read the processes", CollectError)


def first_health_problem(exporter: ExporterState, keys: Collection[WorkerKey], began: float) -> str:
    """Returns the `health_problem` of the first of these workers that has one, or ""."""
    for key in keys:
        if ill := health_problem(exporter, key, began):
            return f"{key.worker}: {ill}" if len(keys) > 1 else ill
    return ""


def health_problem(exporter: ExporterState, key: WorkerKey, began: float) -> str:
    """Returns why a worker is not healthy after a restart that began at `began`, or ""."""
    worker = exporter.workers.get(key)
    if worker is None:
        return "the exporter does not show it"
    if worker.finished and worker.processes == 0:
        return ""
    if worker.processes != worker.expected:
        return f"{worker.processes:g} of {worker.expected:g} processes run"
    if worker.started_at is None or worker.started_at < began - START_TOLERANCE_SECONDS:
        return "it has not restarted"
    limit = worker.memory_limit_bytes
    if limit is not None and worker.memory_bytes > limit:
        return f"it holds {format_size(worker.memory_bytes)}, above its limit"
    return ""
