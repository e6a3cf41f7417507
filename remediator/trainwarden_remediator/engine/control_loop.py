"""The control loop: decides about all open incidents, again and again, and starts actions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.engine.clock_correction import ClockCorrection
from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.engine.executor import Executor
from trainwarden_remediator.engine.maintenance import Maintenance
from trainwarden_remediator.engine.seen_since_start import SeenSinceStart
from trainwarden_remediator.engine.state_loader import read_state
from trainwarden_remediator.evidence.triggers import trigger_for_decision
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.model import Decision, Incident, TargetInstance, Verdict
from trainwarden_remediator.observation.snapshot import Observer, Snapshot, take_snapshot
from trainwarden_remediator.policy.context import PolicyState
from trainwarden_remediator.policy.decide import decide, snapshot_for

log = logging.getLogger(__name__)

CYCLE_SECONDS = 2.0
"""Seconds between two decision cycles when no alert arrives sooner."""

ALIVE_SECONDS = 120.0
"""Seconds without progress after which the loop counts as hung.

Every call that a cycle waits for has a shorter timeout of its own.
"""

LONG_CYCLE_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 10.0
"""After a cycle of more than a second, the loop pauses for as long as the cycle took, at most."""

YIELD_EVERY = 200
"""Number of decisions after which the loop yields, and writes what it has decided."""

STORM_YIELD_SECONDS = 0.1
"""Seconds that the loop yields while webhooks keep arriving."""

ChangedDecision = tuple[Incident, Decision, PolicyState]
"""A decision that differs from the previous one of its incident, and the state it rests on."""


class ControlLoop:
    """Makes all decisions and starts all actions, one after the other, so that none can overlap.

    No action starts while `deciding()` returns False.
    """

    def __init__(
        self, context: EngineContext, *, deciding: Callable[[], bool] = lambda: True
    ) -> None:
        self._context = context
        self._journal = context.journal
        self._clock = context.clock
        self._deciding = deciding
        self._wake = asyncio.Event()
        self._executor = Executor(context, done=self._wake.set)
        self._maintenance = Maintenance(context)
        self._clock_correction = ClockCorrection(context)
        self._finished: Collection[WorkerKey] = ()
        self._seen = SeenSinceStart(context.clock)
        self._last_cycle_setup: Setup | None = None
        """The configuration of the last complete cycle."""
        self._wake_count = 0
        self._last_alive_at = context.clock.monotonic()
        self.last_cycle_at: float | None = None
        """When the last complete cycle ended, in Unix seconds."""
        self.aborted_cycles = 0
        """Number of cycles that were aborted because of memory shortage."""

    def reconfigure(self, setup: Setup, observer: Observer) -> None:
        """Uses another configuration from the next decision on.

        An action in progress ends under the configuration that it started with.
        """
        self._context.setup = setup
        self._context.observer = observer
        self._executor.reconfigure()
        self._wake.set()

    def wake(self) -> None:
        """Starts the next cycle now; called when an alert was journaled."""
        self._wake_count += 1
        self._wake.set()

    def is_alive(self) -> bool:
        """Whether the loop makes progress; if not, the process should be restarted."""
        return self._clock.monotonic() - self._last_alive_at < ALIVE_SECONDS

    async def run(self) -> None:
        """Recovers actions that a crash interrupted, then runs decision cycles forever.

        A memory shortage aborts a cycle; the next one uses the failsafe's memory reserve.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._maintenance.run(), name="maintenance")
            for left in await asyncio.to_thread(self._journal.open_actions):
                group.create_task(self._executor.recover(left), name=f"recover action {left.id}")
            while True:
                starved = False
                try:
                    await self._run_cycle(group)
                except* MemoryError:  # several tasks may raise it at once
                    starved = True
                if starved:
                    self._record_memory_error()
                    await self._clock.sleep(CYCLE_SECONDS)

    async def _run_cycle(self, group: asyncio.TaskGroup) -> None:
        self._wake.clear()
        began = self._clock.monotonic()
        try:
            if self._deciding():
                await self._decide_all(group)
                self.last_cycle_at = self._clock.now()
        except JournalError as error:
            log.error("journal failed", extra={"error": str(error)})
        await asyncio.to_thread(self._executor.reap_children, self._finished)
        self._mark_alive()
        took = self._clock.monotonic() - began
        if took > LONG_CYCLE_SECONDS:  # an alert storm: leave as much time to the webhooks
            await self._clock.sleep(min(took, MAX_BACKOFF_SECONDS))
        await self._pause()

    def _record_memory_error(self) -> None:
        """Counts an aborted cycle, and frees memory for the next one."""
        self.aborted_cycles += 1
        if self._context.failsafe is not None:
            self._context.failsafe.release_reserve()
        with suppress(MemoryError):
            log.error("out of memory; decision cycle aborted")

    async def _pause(self) -> None:
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._clock.sleep(CYCLE_SECONDS))
            woken = group.create_task(self._wake.wait())
            await asyncio.wait({timer, woken}, return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
            woken.cancel()

    def _mark_alive(self) -> None:
        self._last_alive_at = self._clock.monotonic()

    # deciding

    async def _decide_all(self, group: asyncio.TaskGroup) -> None:
        setup, state = self._context.setup, await self._state()
        changed: list[ChangedDecision] = []
        seen_wakes = self._wake_count
        for number, incident in enumerate(state.incidents):
            self._mark_alive()
            if number % YIELD_EVERY == 0:  # there may be thousands, and webhooks that wait
                seen_wakes = await self._yield_to_webhooks(seen_wakes)
            if incident.id in state.incidents_in_progress:
                continue  # its action is still in progress
            decision, state = await self._decide(incident, state)
            processes: Collection[TargetInstance] = ()
            if decision.verdict is Verdict.ACT and decision.target is not None:
                # An action needs a fresh observation: a cycle may be long (harm 4).
                known = await self._state()
                state = replace(known, snapshot=await self._take_snapshot())
                if (confirmed := self._confirm_decision(incident, state)) is None:
                    continue
                decision = confirmed
            if decision.verdict is Verdict.ACT and decision.target is not None:
                view = snapshot_for(incident, state.snapshot)
                decision, processes = await self._executor.prepare(
                    *(incident, decision, decision.target, view.exporter if view else None),
                    approval=state.approvals.get(incident.id),
                )
            if decision.text != incident.last_decision:
                changed.append((incident, decision, state))
            if len(changed) >= YIELD_EVERY:
                await self._record_decisions(changed, group)
            if decision.verdict is Verdict.ACT and decision.reason != "hold":
                await self._record_decisions(changed, group)
                await self._executor.start(incident, decision, processes, state.snapshot, group)
                state = replace(await self._state(), snapshot=state.snapshot)
        await self._record_decisions(changed, group)
        self._last_cycle_setup = setup

    async def _yield_to_webhooks(self, seen_wakes: int) -> int:
        """Yields to other tasks, longer if wake() was called since the count was `seen_wakes`.

        Returns the new count.
        """
        if self._wake_count == seen_wakes:
            await asyncio.sleep(0)
        else:
            await self._clock.sleep(STORM_YIELD_SECONDS)
        return self._wake_count

    async def _decide(self, incident: Incident, state: PolicyState) -> tuple[Decision, PolicyState]:
        """Returns the decision and the state it rests on, taking a snapshot if it needs one."""
        decision = decide(incident, state, self._clock.now())
        if decision.verdict is Verdict.OBSERVE_FIRST:
            # One snapshot serves all decisions of a cycle that do not act.
            seen = await self._take_snapshot()
            holds = await asyncio.to_thread(self._executor.current_holds)
            state = self._seen.add_to(replace(state, snapshot=seen, holds=holds))
            decision = decide(incident, state, self._clock.now())
        return decision, state

    async def _record_decisions(
        self, changed: list[ChangedDecision], group: asyncio.TaskGroup
    ) -> None:
        """Journals the decisions in `changed`, clears the list, and starts taking evidence."""
        written, changed[:] = tuple(changed), []
        if not written:
            return
        decisions = [(incident, decision) for incident, decision, _ in written]
        await asyncio.to_thread(self._journal.record_decisions, decisions)
        for incident, decision, state in written:
            _log_decision(incident, decision)
            if (trigger := trigger_for_decision(incident, decision, state)) is not None:
                group.create_task(self._executor.take_evidence(trigger), name="take evidence")

    async def _take_snapshot(self) -> Snapshot:
        snapshot = await take_snapshot(self._context.observer)
        if self._context.failsafe is None:
            return snapshot
        return await self._context.failsafe.with_failsafe_view(snapshot)

    def _confirm_decision(self, incident: Incident, state: PolicyState) -> Decision | None:
        """Decides again from the current state.

        Returns None if the incident was closed meanwhile, or no action may start any more.
        """
        current = next((one for one in state.incidents if one.id == incident.id), None)
        if current is None or state.setup is not self._context.setup or not self._deciding():
            return None
        return decide(current, state, self._clock.now())

    async def _state(self) -> PolicyState:
        reread = self._context.reread_exporter_file
        problem = await reread() if reread is not None else ""
        await self._clock_correction.apply()
        setup = self._context.setup
        reloaded = setup is not self._last_cycle_setup
        state = await read_state(self._journal, setup, self._clock, include_unowned=reloaded)
        self._finished = state.finished.keys()
        return self._seen.add_to(replace(state, config_problem=problem))


def _log_decision(incident: Incident, decision: Decision) -> None:
    log.info(
        "decided",
        extra={
            "incident": incident.id,
            "alert": incident.alert,
            "run": incident.run,
            "worker": incident.worker,
            "verdict": decision.verdict.value,
            "reason": decision.reason,
            "detail": decision.detail,
        },
    )
