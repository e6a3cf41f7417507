"""Runs one action in a thread, journals each of its steps, and verifies the effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as NoAnswerError
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.resolved_path import resolved_path
from trainwarden_remediator.actions.base import Action, IsSaving, RecordStep, never_saving
from trainwarden_remediator.config.playbooks import Condition, Verify
from trainwarden_remediator.config.targets import AnnouncedTarget
from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.exceptions import (
    ActionDeferredError,
    ActionError,
    JournalError,
    ObservationError,
    OutcomeUnknownError,
)
from trainwarden_remediator.journal.rows import Outcome
from trainwarden_remediator.model import Result, TakenOver, TargetInstance, processes_among
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.observation.snapshot import RESPONSE_TIMEOUT_SECONDS
from trainwarden_remediator.policy.conditions import is_fresh, is_saving, repeats_saves
from trainwarden_remediator.policy.effect import EffectCheck, describe_early_progress, passed_over
from trainwarden_remediator.policy.full_disk import disk_problem
from trainwarden_remediator.policy.verification import Look, Verification
from trainwarden_remediator.runtime.host_lock import host_locks

log = logging.getLogger(__name__)

VERIFY_INTERVAL_SECONDS = 1.0
"""Seconds between two observations while the effect of an action is verified."""

QUERY_TIMEOUT_SECONDS = 20.0
"""Seconds that an action may take to find or inspect its processes."""

SHUTDOWN_WAIT_SECONDS = 15.0
"""Seconds that a shutdown waits for an action in progress."""

RETRY_SECONDS = 2.0
"""Seconds between two attempts to write a record to the journal."""

T = TypeVar("T")

Perform = Callable[[str, RecordStep, IsSaving], Mapping[str, Any]]
"""Performs an action; the first argument is its token."""


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """An action to run.

    `number` is its id in the journal. `protected`: the processes that it terminates may be writing
    a checkpoint. `keys` names all workers of a target that has several.
    """

    number: int
    key: WorkerKey
    action: Action
    verify: Verify
    checkpoint: float | None = None
    restartable: frozenset[WorkerKey] = frozenset()
    protected: bool = False
    keys: tuple[WorkerKey, ...] = ()
    step: float | None = None
    """The step of the run at the intent."""
    steps_repeated: float | None = None
    """How many steps it had repeated by then; unknown after a crash."""
    proved: float | None = None
    """The step of its newest proved checkpoint at the intent; unknown after a crash."""
    instances: Collection[TargetInstance] = ()
    """The instances that it may end."""
    workers_hash: int = 0
    """`Setup.workers_hash_of` its run at the decision."""
    condition: Condition | None = None
    """What it is to end; None if its playbook is not in the file any more."""
    progress_at: float | None = None
    """The last progress of the run at the intent; unknown after a crash."""


class ActionRunner:
    """Runs one action for each call; the caller ensures that actions do not conflict."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._journal = context.journal
        self._clock = context.clock
        self._unanswered: set[Action] = set()
        self._stopping = False

    async def query(self, action: Action, question: Callable[[], T]) -> T:
        """Returns the result of `question`, called in a thread of its own.

        Raises ActionError, also after QUERY_TIMEOUT_SECONDS: a process that is blocked in the
        kernel can block every reader of its files, and must not block the caller.
        """
        if action in self._unanswered:
            raise ActionError("cannot inspect the processes: the previous query is still running")
        try:
            thread = self._context.thread_factory("query an action")
        except RuntimeError as error:  # the host has run out of threads
            raise ActionError(f"cannot inspect the processes: {error}") from error
        answer = thread.call(question)
        thread.close()
        self._unanswered.add(action)
        answer.add_done_callback(lambda _: self._unanswered.discard(action))
        await asyncio.wait([answer], timeout=QUERY_TIMEOUT_SECONDS)
        if not answer.done():
            raise ActionError(
                f"cannot inspect the processes: no response within {QUERY_TIMEOUT_SECONDS:g} s"
            )
        try:
            return answer.result()
        except MemoryError as error:
            raise ActionError("cannot inspect the processes: out of memory") from error
        except ActionError:
            raise
        except Exception as error:  # one odd process must not end the control loop of all targets
            log.exception("query failed")
            what = f"{type(error).__name__}: {error}"
            raise ActionError(f"cannot inspect the processes: {what}") from error

    async def run(self, request: ActionRequest, perform: Perform) -> bool:
        """Performs an action and verifies its effect.

        Returns False if no thread could be started for it, or if it was deferred: the cause
        probably still exists.
        """
        changed_at: float | None = None
        ignored: dict[str, float] = {}
        roots = {one.pid for one in processes_among(request.instances)}

        def record_step(step: str, **facts: Any) -> None:
            nonlocal changed_at
            if step == "kill" and not roots.isdisjoint(facts["processes"]):
                ignored["sigterm_ignored"] = facts["seconds"]
            self._journal.record_step(request.number, step, **facts)
            if changed_at is None and not step.endswith("_deferred"):
                changed_at = self._clock.now()

        began, saving = self._clock.since_boot(), self._save_check(request)
        action_token = self._journal.action_token(request.key, request.number)
        # A thread of its own: webhook handlers must not wait for a worker's grace period.
        try:
            thread = self._context.thread_factory(f"action {request.number}")
        except RuntimeError as error:  # nothing was done, so this is not an attempt
            log.error(
                "cannot start action thread", extra={**request.key._asdict(), "error": str(error)}
            )
            await self.record_result(request.number, "interrupted", found=str(error))
            return False

        def perform_locked() -> Mapping[str, Any]:
            with ExitStack() as stack:
                try:
                    stack.enter_context(host_locks(*self._lock_names(request)))
                except BlockingIOError as error:
                    raise ActionDeferredError(f"another remediator: {error}") from error
                return perform(action_token, record_step, saving)

        act = thread.call(perform_locked)
        thread.close()
        try:
            await asyncio.wait([act])
        except asyncio.CancelledError:
            self._stopping = True
            raise
        finally:
            # Also at shutdown: an action must not be left half done.
            await asyncio.wait([act], timeout=SHUTDOWN_WAIT_SECONDS)
            done = act.done() and await self._record_act(request, act)
        if done:
            await self.verify(request, began, changed_at, ignored)
        return not isinstance(act.exception(), ActionDeferredError)

    def _lock_names(self, request: ActionRequest) -> list[str]:
        """Returns names of the workers and of their instances on this host.

        Another remediator has the same ones: those of the workers, or, with a copy of exporter.yml,
        those of the instances.
        """
        file = resolved_path(str(self._context.setup.config.exporter.config.absolute()))
        workers = [f"{file}\0{key.run}\0{key.worker}" for key in request.keys or (request.key,)]
        return [*workers, *(f"instance\0{one}" for one in request.instances)]

    async def record(self, write: Callable[..., None], *values: Any, **facts: Any) -> None:
        """Writes a record to the journal, retrying until it succeeds.

        Until then the action counts as in progress, so that no other action on the run starts.
        Raises JournalError only during shutdown.
        """
        while True:
            try:
                return await asyncio.to_thread(write, *values, **facts)
            except JournalError as error:
                log.error("journal failed", extra={"error": str(error)})
                if self._stopping:
                    raise  # crash recovery of the next start records it
                await self._clock.sleep(RETRY_SECONDS)

    async def record_result(self, number: int, result: Result, **facts: Any) -> None:
        """Writes the result of an action, as `record` does."""
        await self.record(self._journal.record_result, number, result, **facts)

    async def record_outcome(self, number: int, outcome: Outcome, **facts: Any) -> None:
        """Writes the outcome of an action, as `record` does."""
        await self.record(self._journal.record_outcome, number, outcome, **facts)

    async def verify(
        self,
        request: ActionRequest,
        began: float,
        changed_at: float | None = None,
        noted: Mapping[str, float] | None = None,
    ) -> None:
        """Observes the target until it has been healthy for `steady`, or time runs out.

        `began`: when the action started, in seconds since boot: the time of day may be set.
        `changed_at`: when its first change began (Unix seconds); None if that is unknown. `noted`:
        what is recorded of the action where it has healed.
        """
        verify = request.verify
        check = EffectCheck(
            *(request.key, 0.0, verify, request.checkpoint, request.restartable, request.keys),
            trainer=request.protected,
            step=request.step,
            proved=request.proved,
            condition=request.condition,
        )
        verification = Verification(verify, self._clock.monotonic())
        while True:
            try:
                exporter = await self._context.observer_with_fallback.observe()
            except ObservationError as error:
                look = Look(str(error))
            else:
                today = self._clock.now()
                check = replace(check, began=today - (self._clock.since_boot() - began))
                look = check.look(
                    *(exporter, today),
                    problem=request.action.health_problem(exporter, check.began)
                    or self._disk_problem(request, exporter, today),
                    start_failure=request.action.start_failure(),
                    taken_over=self._taken_over(request.key, check.began),
                )
            if end := verification.update(self._clock.monotonic(), look):
                break
            await self._clock.sleep(VERIFY_INTERVAL_SECONDS)
        facts: dict[str, Any] = {"taken_over": end.taken_over} if end.taken_over else {}
        seen = end.text
        if end.healed:
            run = exporter.runs.get(request.key.run)
            stalled = request.condition is Condition.NO_PROGRESS
            seen = describe_early_progress(run, request.progress_at, changed_at) if stalled else ""
        if seen or not end.healed:
            await self.record_outcome(request.number, "not_healed", seen=seen, **facts)
            log.error("not healed", extra={**request.key._asdict(), "seen": seen})
            return
        facts |= {"seconds": round(self._clock.since_boot() - began, 1)}
        facts |= self._healed_facts(request, exporter, check.began)
        facts |= ({"remark": end.text} if end.text else {}) | dict(noted or {})
        await self.record_outcome(request.number, "healed", **facts)
        log.info("healed", extra={**request.key._asdict(), **facts})

    def _disk_problem(self, request: ActionRequest, exporter: ExporterState, now: float) -> str:
        """Returns why a trainer that runs will soon fail again, as it cannot save, or ""."""
        setup, run = self._context.setup, request.key.run
        if not request.protected:
            return ""
        path, reserve = setup.run_path(run), setup.config.disk_reserve
        return disk_problem(exporter, run, path, reserve, now)

    def _healed_facts(
        self, request: ActionRequest, exporter: ExporterState, began: float
    ) -> Mapping[str, Any]:
        """Returns the progress of a run that has healed, and its interruption."""
        run = exporter.runs.get(request.key.run)
        own = self._context.setup.announced.workers.get(request.key)
        started = 0.0 if own is None else own.announcement.announced_at
        return {**_progress_facts(run, request), **interruption_facts(run, began, started)}

    def _taken_over(self, key: WorkerKey, began: float) -> TakenOver | None:
        """Returns what has ended or started a worker since `began` (Unix seconds), if anything."""
        setup = self._context.setup
        if setup.is_stopped(*key):
            return setup.stop_reason(*key)
        # Another method may itself start a `trainwarden run`, which announces the worker again.
        if not isinstance(setup.config.target(key), AnnouncedTarget):
            return None
        found = setup.announced.workers.get(key)
        again = found is not None and found.announcement.announced_at > began
        return "started_by_operator" if again else None

    async def _record_act(
        self, request: ActionRequest, act: asyncio.Future[Mapping[str, Any]]
    ) -> bool:
        """Records the result of an action. Returns whether it was done, or may have been."""
        error = act.exception()
        if isinstance(error, MemoryError):
            error = ActionError("out of memory")
        if error is None:
            await self.record_result(request.number, "done", **act.result())
            return True
        fields = {**request.key._asdict(), "error": str(error)}
        if isinstance(error, ActionDeferredError):
            log.info("action deferred", extra=fields)
            await self.record(self._journal.record_not_attempted, request.number, str(error))
            return False
        log.error(
            "action failed",
            exc_info=None if isinstance(error, ActionError) else error,
            extra=fields,
        )
        await self.record_result(request.number, "failed", error=str(error))
        if isinstance(error, OutcomeUnknownError):
            return True
        await self.record_outcome(request.number, "not_healed")
        return False

    def _save_check(self, request: ActionRequest) -> IsSaving:
        """Returns a function that the action's thread calls to check for a save in progress.

        Unknown counts as saving: the kill is only deferred. The answer is also unknown until the
        exporter has scanned the checkpoints once after the first call, because a trainer may start
        to save when it receives SIGTERM.
        """
        if not request.protected:
            return never_saving
        loop = asyncio.get_running_loop()
        first_called_at: float | None = None

        def check() -> bool:
            nonlocal first_called_at
            if first_called_at is None:
                first_called_at = self._clock.since_boot()
            observation = self._context.observer_with_fallback.observe()
            try:
                answer = asyncio.run_coroutine_threadsafe(observation, loop)
            except RuntimeError:  # the event loop is closed: the program is stopping
                observation.close()
                return True
            try:
                exporter = answer.result(RESPONSE_TIMEOUT_SECONDS + 1)
            except (ObservationError, NoAnswerError, CancelledError, MemoryError):
                answer.cancel()
                return True
            if exporter.saves_unknown_of(request.key.run):
                return True
            run = exporter.runs.get(request.key.run)
            if run is None:
                return False
            seen, now = run.checkpoints_seen_at, self._clock.now()
            called = now - (self._clock.since_boot() - first_called_at)
            scanned = seen is None or seen >= called or not is_fresh(seen, now)
            return not scanned or (is_saving(run, now) and not repeats_saves(run, called, now))

        return check


def _progress_facts(run: RunState | None, request: ActionRequest) -> Mapping[str, Any]:
    """Returns the progress of a run when it was found healthy, for the report."""
    if run is None:
        return {}
    before, repeated = request.steps_repeated, run.steps_repeated
    progress = {
        "step": run.step,
        "checkpoint": run.checkpoint,
        "resume_step": run.resume_step,
        "first_step": run.first_step,
        "step_spacing": run.step_spacing,
        "steps_repeated": None if before is None or repeated is None else repeated - before,
    }
    known = {name: value for name, value in progress.items() if value is not None}
    return {**known, **passed_over(run)}


def interruption_facts(
    run: RunState | None, began: float, started_by_operator: float
) -> Mapping[str, float]:
    """Returns the interruption of a run during an action that began at `began` (Unix seconds)."""
    if run is None or run.interruption_start is None or run.interruption_start > began:
        return {}
    # What an operator has stopped and started costs since that start.
    start, end = max(run.interruption_start, started_by_operator), run.interruption_end
    if end is None:
        return {"interruption_start": start}
    return {"interruption_start": start, "interruption_end": end} if end >= began else {}
