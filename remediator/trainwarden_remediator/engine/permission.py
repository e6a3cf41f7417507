"""Whether an action that was decided may still be taken, asked again before its first change."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as NoAnswerError

from trainwarden_remediator.config.targets import Budget, Target
from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.exceptions import ActionDeferredError, JournalError, ObservationError
from trainwarden_remediator.holds.hold_file import read_holds
from trainwarden_remediator.journal.approvals import is_approved
from trainwarden_remediator.journal.event_text import describe_reason
from trainwarden_remediator.model import Incident, Need
from trainwarden_remediator.observation.snapshot import (
    RESPONSE_TIMEOUT_SECONDS,
    Snapshot,
    take_snapshot,
)
from trainwarden_remediator.policy.alert_blockers import blocking_alert, find_suppression
from trainwarden_remediator.policy.context import PolicyState
from trainwarden_remediator.policy.decide import snapshot_for
from trainwarden_remediator.policy.halts import find_halt
from trainwarden_remediator.policy.need import no_longer_needed

ANSWER_COUNTS_SECONDS = 1.0
"""For how long an answer counts; most actions wait for nothing before they act."""


class Permission:
    """Asks whether an action may still be taken, after each wait before its first change.

    Evidence, a requested checkpoint or a save in progress may take many minutes. Meanwhile an
    operator may hold the target, halt the run or silence the alert (harm 23), and the alert or its
    condition may end (harm 4): the alert lags behind the exporter.
    """

    def __init__(
        self,
        context: EngineContext,
        incident: Incident,
        target: Budget,
        decided: Snapshot | None,
        *,
        need: Need | None = None,
    ) -> None:
        """`need`: see Decision."""
        self._context = context
        self._incident = incident
        self._target = target
        self._need = need
        self._decided = snapshot_for(incident, decided) or Snapshot(None, None)
        self._loop = asyncio.get_running_loop()
        self._latest = Snapshot(None, None)
        self._asked_at = -math.inf

    async def blocker(self) -> str:
        """Returns why the action must not be taken any more, or ""."""
        if self._is_answer_old():
            await self._ask()
        return await asyncio.to_thread(self._blocker)

    def confirm(self) -> None:
        """Raises ActionDeferredError if the action must not be taken any more; blocks.

        Called in the thread of the action.
        """
        if self._is_answer_old():
            self._ask_from_thread()
        if why := self._blocker():
            raise ActionDeferredError(why)

    def _is_answer_old(self) -> bool:
        return self._context.clock.monotonic() - self._asked_at > ANSWER_COUNTS_SECONDS

    def _ask_from_thread(self) -> None:
        asking = self._ask()
        try:
            answer = asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError as error:  # the event loop is closed
            asking.close()
            raise ActionDeferredError("the program is stopping") from error
        try:
            answer.result(RESPONSE_TIMEOUT_SECONDS + 1)
        except (NoAnswerError, CancelledError, MemoryError) as error:
            answer.cancel()
            raise ActionDeferredError(
                "the alert and its condition could not be asked for again"
            ) from error

    async def _ask(self) -> None:
        if self._need is not None:
            latest = await take_snapshot(self._context.observer)
        else:
            latest = await self._alerts_alone()
        if self._context.failsafe is not None:
            latest = await self._context.failsafe.with_failsafe_view(latest)
        self._latest = snapshot_for(self._incident, latest) or latest
        self._asked_at = self._context.clock.monotonic()

    async def _alerts_alone(self) -> Snapshot:
        try:
            return Snapshot(await self._context.observer.alerts(), self._decided.exporter)
        except ObservationError as error:
            return Snapshot(None, self._decided.exporter, str(error))

    def _blocker(self) -> str:
        alerts, decided = self._latest.alerts, self._decided.alerts
        exporter = self._latest.exporter
        if alerts is None:
            return self._latest.unknown
        # An alert that had already resolved at the decision is followed up.
        listed = decided is not None and self._incident.fingerprint in decided.states
        if reason := find_suppression(self._incident, alerts, must_be_listed=listed):
            return describe_reason(reason)
        if self._need is not None:
            # Unknown is not bad: without an answer there is no signal (harm 9).
            if exporter is None:
                return self._latest.unknown
            run, now = self._target.key.run, self._context.clock.now()
            halt = find_halt(run, exporter) if self._need.yields_to_halt else None
            if halt is not None:
                return describe_reason(*halt)
            if why := no_longer_needed(self._need, run, exporter, now):
                return why
        return blocker_here(self._context, self._target, self._incident.id)


def blocker_here(context: EngineContext, target: Budget, incident: int) -> str:
    """Returns which mode, hold or other alert stops actions on `target` now, or ""; blocks.

    In mode observe, the action that has begun for `incident` may go on while its approval is valid.
    """
    setup = context.setup
    now = context.clock.now()
    if setup.config.mode == "observe":
        try:
            approved = is_approved(context.journal.timestamps(), incident, now)
        except JournalError as error:
            return str(error)
        if not approved:
            return "the mode is observe"
    if not isinstance(target, Target):  # leftovers may be cleaned up during a hold (harm 24)
        return ""
    holds = read_holds(setup.config.hold_file, now, context.clock.since_boot())
    try:
        incidents, actions = context.journal.open_incidents(), context.journal.past_actions(now)
    except JournalError as error:
        return str(error)
    state = PolicyState(setup, holds, incidents, actions)
    if (hold := state.active_hold(*target.keys)) is not None:
        return f"held {hold.description}".strip()
    alert = blocking_alert(target, state)
    return f"held while {alert} lasts" if alert else ""
