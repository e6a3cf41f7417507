"""Completes actions that a crash interrupted, by inspecting the target; repeats no step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from trainwarden_remediator.actions.base import Action, ActionState, IsSaving, RecordStep
from trainwarden_remediator.engine.action_runner import (
    VERIFY_INTERVAL_SECONDS,
    ActionRequest,
    ActionRunner,
)
from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.exceptions import ActionError, ObservationError
from trainwarden_remediator.journal.rows import OpenAction
from trainwarden_remediator.observation.model import ExporterState

log = logging.getLogger(__name__)

OBSERVATION_WAIT_SECONDS = 30.0
"""Seconds that a start waits for the exporter, which knows the newest proved checkpoint."""


class CrashRecovery:
    """Completes interrupted actions; several may be recovered at once.

    `start_blocker` returns why a terminated worker must not be started now, or "".
    """

    def __init__(
        self,
        context: EngineContext,
        action_runner: ActionRunner,
        start_blocker: Callable[[OpenAction], str],
    ) -> None:
        self._context = context
        self._journal = context.journal
        self._action_runner = action_runner
        self._clock = context.clock
        self._start_blocker = start_blocker

    async def recover(self, left: OpenAction, request: ActionRequest | None) -> None:
        """Completes the action `left`; `request` is None if its target is no longer configured."""
        if request is None:
            await self._abandon(left)
            return
        if left.result is not None:
            await self._action_runner.verify(request, self._began(left))
            return
        state = await self._wait_for_end(left, request.action)
        match state:
            case ActionState.STARTED:
                await self._action_runner.record_result(left.id, "done", settled=state.value)
                await self._action_runner.verify(request, self._began(left))
            case ActionState.ENDED if self._has_failed_again(left):
                # Another start would be another attempt.
                await self._action_runner.record_result(left.id, "done", settled=state.value)
                seen = "it ended soon after its start"
                await self._action_runner.record_outcome(left.id, "not_healed", seen=seen)
            case ActionState.ENDED if left.last_step is not None:
                if why := await asyncio.to_thread(self._start_blocker, left):
                    await self._record_interrupted(left, f"ended, not started again: {why}")
                else:
                    await self._finish(request)
            case _:
                await self._record_interrupted(left, state.value)

    def _has_failed_again(self, left: OpenAction) -> bool:
        """Whether `trainwarden run` has started the worker since the intent, and it has failed."""
        found = self._context.setup.announced.workers.get(left.key)
        if found is None or found.announcement.state != "failed":
            return False
        return (found.announcement.started_at or 0.0) > left.intent_at

    async def _finish(self, request: ActionRequest) -> None:
        """Starts the terminated worker, from the newest proved checkpoint of now."""
        exporter = await self._observe()

        def finish(action_token: str, record_step: RecordStep, _: IsSaving) -> Mapping[str, Any]:
            if exporter is not None:
                request.action.update_from(exporter)
            return request.action.finish(action_token, record_step)

        await self._action_runner.run(request, finish)

    async def _observe(self) -> ExporterState | None:
        """Returns what the exporter shows; None if it does not respond in time."""
        deadline = self._clock.monotonic() + OBSERVATION_WAIT_SECONDS
        while True:
            try:
                return await self._context.observer.observe()
            except ObservationError as error:
                if self._clock.monotonic() >= deadline:
                    log.warning("exporter does not respond", extra={"error": str(error)})
                    return None
            await self._clock.sleep(VERIFY_INTERVAL_SECONDS)

    def _began(self, left: OpenAction) -> float:
        """Returns when an action began, in seconds since boot."""
        passed = self._clock.now() - left.intent_at
        # The clock was set back since: what runs was started in this boot.
        return 0.0 if passed < 0 else self._clock.since_boot() - passed

    async def _abandon(self, left: OpenAction) -> None:
        why = "no longer a configured target"
        if left.result is None:
            await self._record_interrupted(left, why)
            if left.last_step is not None:  # nobody else would learn that the worker may be down
                detail = f"an action was interrupted after `{left.last_step}`, and it is {why}"
                page = self._journal.record_page
                await self._action_runner.record(page, left.incident, left.key, left.rung, detail)
        else:
            await self._action_runner.record_outcome(left.id, "not_healed", seen=why)

    async def _wait_for_end(self, left: OpenAction, action: Action) -> ActionState:
        """Returns the state of an action, after waiting out the grace period of a termination."""
        action_token = self._journal.action_token(left.key, left.id)
        deadline = self._clock.monotonic() + action.grace
        while True:
            try:
                question = partial(action.inspect, action_token, left.processes)
                state = await self._action_runner.query(action, question)
            except ActionError as error:
                log.error(
                    "cannot recover action", extra={**left.key._asdict(), "error": str(error)}
                )
            else:
                late = self._clock.monotonic() >= deadline
                if state is not ActionState.UNTOUCHED or left.last_step is None or late:
                    return state
            await self._clock.sleep(VERIFY_INTERVAL_SECONDS)

    async def _record_interrupted(self, left: OpenAction, why: str) -> None:
        log.warning("action was interrupted", extra={**left.key._asdict(), "found": why})
        await self._action_runner.record_result(left.id, "interrupted", found=why)
