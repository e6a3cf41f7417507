"""Decides again and again, and has carried out what was decided."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace

from trainwarden_exporter.lane import Lane
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.acting import Acting, Evidence
from trainwarden_remediator.actions import action_for
from trainwarden_remediator.actions.base import Action
from trainwarden_remediator.brake import Brake
from trainwarden_remediator.carrying import Clock
from trainwarden_remediator.config import Setup
from trainwarden_remediator.decision import Decision, Incident, State, Verdict
from trainwarden_remediator.evidence.occasion import occasion_of
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.kin import KinMemory
from trainwarden_remediator.policy import decide
from trainwarden_remediator.situation import read_state
from trainwarden_remediator.subjects import Subject
from trainwarden_remediator.targets import Budget
from trainwarden_remediator.upkeep import Upkeep
from trainwarden_remediator.world import Eyes, World, ask

log = logging.getLogger(__name__)

TURN_SECONDS = 2.0
"""How often waiting incidents are decided again when nothing calls for it sooner."""

ALIVE_SECONDS = 120.0
"""A turn moves on within this, whatever hangs: what is asked in it has time limits of its own."""

LONG_SECONDS = 1.0
MOST_REST_SECONDS = 10.0
"""A turn of more than a second is followed by a rest as long as it was, and never longer."""

BREATH = 200
"""After so many decisions others have their turn, and what was decided is written down."""

WAY_SECONDS = 0.1
"""How long they have it in a storm of webhooks."""

News = tuple[Incident, Decision, State]
"""A decision that says what the last one did not, and what it rests on."""


class Engine:
    """The one place where decisions are made and acted upon, so that no two can overlap.

    Nothing is begun while `deciding` says no.
    """

    def __init__(
        self,
        setup: Setup,
        journal: Journal,
        eyes: Eyes,
        *,
        clock: Clock,
        action_for: Callable[[Budget, Setup, KinMemory], Action] = action_for,
        lane: Callable[[str], Lane] = Lane,
        kin: KinMemory | None = None,
        deciding: Callable[[], bool] = lambda: True,
        evidence: Evidence | None = None,
        brake: Brake | None = None,
    ) -> None:
        self._setup = setup
        self._journal = journal
        self._eyes = eyes
        self._clock = clock
        self._deciding = deciding
        self._brake = brake
        self._wake = asyncio.Event()
        kin = KinMemory(journal) if kin is None else kin
        self._acting = Acting(
            journal,
            setup=lambda: self._setup,
            eyes=self._present_eyes,
            clock=clock,
            action_for=action_for,
            lane=lane,
            kin=kin,
            evidence=evidence,
            done=self._wake.set,
        )
        self._upkeep = Upkeep(journal, kin, lambda: self._setup, clock=clock, lane=lane)
        self._finished: frozenset[WorkerKey] = frozenset()
        self._turned_by: Setup | None = None
        """By what all was decided in some turn."""
        self._heard = 0
        self._moved_at = clock.monotonic()
        self.turned_at: float | None = None
        """When it last came to the end of a turn, in Unix seconds."""
        self.broken_off = 0
        """How many turns have ended before that for want of memory."""

    def use(self, setup: Setup, eyes: Eyes) -> None:
        """Go by another configuration from the next decision on.

        An action under way ends as it began.
        """
        self._setup = setup
        self._eyes = eyes
        self._acting.use(setup)
        self._wake.set()

    def wake(self) -> None:
        """Something was heard: decide soon."""
        self._heard += 1
        self._wake.set()

    def is_alive(self) -> bool:
        """Whether it moves on; one that does not is better started anew."""
        return self._clock.monotonic() - self._moved_at < ALIVE_SECONDS

    async def run(self) -> None:
        """Settle what a crash left open, then decide for ever.

        Want of memory breaks a turn off, and the next is made with what the brake has set aside.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._upkeep.run(), name="upkeep")
            for left in await asyncio.to_thread(self._journal.unfinished):
                group.create_task(self._acting.settle(left), name=f"settle action {left.id}")
            while True:
                starved = False
                try:
                    await self._go_on(group)
                except* MemoryError:  # also where it comes out of several tasks
                    starved = True
                if starved:
                    self._note_want()
                    await self._clock.sleep(TURN_SECONDS)

    async def _go_on(self, group: asyncio.TaskGroup) -> None:
        self._wake.clear()
        began = self._clock.monotonic()
        try:
            if self._deciding():
                await self._turn(group)
                self.turned_at = self._clock.now()
        except JournalError as error:
            log.error("journal failed", extra={"error": str(error)})
        await asyncio.to_thread(self._acting.tidy, self._finished)
        self._move()
        took = self._clock.monotonic() - began
        if took > LONG_SECONDS:  # in a storm, leave as much time to the webhooks
            await self._clock.sleep(min(took, MOST_REST_SECONDS))
        await self._pause()

    def _note_want(self) -> None:
        """Count a turn that was broken off, and let the next have some memory."""
        self.broken_off += 1
        if self._brake is not None:
            self._brake.lend()
        with suppress(MemoryError):
            log.error("no memory to decide with")

    async def _pause(self) -> None:
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._clock.sleep(TURN_SECONDS))
            woken = group.create_task(self._wake.wait())
            await asyncio.wait({timer, woken}, return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
            woken.cancel()

    def _move(self) -> None:
        self._moved_at = self._clock.monotonic()

    # deciding

    async def _turn(self, group: asyncio.TaskGroup) -> None:
        setup, state = self._setup, await self._state()
        news: list[News] = []
        heard = self._heard
        for number, incident in enumerate(state.incidents):
            self._move()
            if number % BREATH == 0:  # there may be thousands, and webhooks to be answered
                heard = await self._give_way(heard)
            if incident.id in state.acted_upon:
                continue  # what is being done about it is the decision
            decision, state = await self._decide(incident, state)
            processes: Collection[Subject] = ()
            if decision.verdict is Verdict.ACT and decision.target is not None:
                # To act takes a look of its own: a turn may be long, and all may have changed.
                known = await self._state()
                state = replace(known, world=await self._ask())
                if (anew := self._decide_anew(incident, state)) is None:
                    continue
                decision = anew
            if decision.verdict is Verdict.ACT and decision.target is not None:
                decision, processes = await self._acting.prepare(decision, decision.target)
            if decision.text != incident.said:
                news.append((incident, decision, state))
            if len(news) >= BREATH:
                await self._write_down(news, group)
            if decision.verdict is Verdict.ACT and decision.reason != "hold":
                await self._write_down(news, group)
                await self._acting.begin(incident, decision, processes, state.world, group)
                state = replace(await self._state(), world=state.world)
        await self._write_down(news, group)
        self._turned_by = setup

    async def _give_way(self, heard: int) -> int:
        """Let others have their turn; a longer one while there is more to be heard.

        Returns how often it has heard something until now, which was `heard` the last time.
        """
        if self._heard == heard:
            await asyncio.sleep(0)
        else:
            await self._clock.sleep(WAY_SECONDS)
        return self._heard

    async def _decide(self, incident: Incident, state: State) -> tuple[Decision, State]:
        """What is done about it, and what that rests on: the world is asked where it must be."""
        decision = decide(incident, state, self._clock.now())
        if decision.verdict is Verdict.LOOK:
            # One look serves the whole turn, for all that only waits.
            seen = await self._ask()
            holds = await asyncio.to_thread(self._acting.holds)
            state = replace(state, world=seen, holds=holds)
            decision = decide(incident, state, self._clock.now())
        return decision, state

    async def _write_down(self, news: list[News], group: asyncio.TaskGroup) -> None:
        """Record what was decided, and go on with an empty list."""
        written, news[:] = tuple(news), []
        if not written:
            return
        decisions = [(incident, decision) for incident, decision, _ in written]
        await asyncio.to_thread(self._journal.all_decided, decisions)
        for incident, decision, state in written:
            _say(incident, decision)
            if (occasion := occasion_of(incident, decision, state)) is not None:
                group.create_task(self._acting.take_evidence(occasion), name="take evidence")

    def _present_eyes(self) -> Eyes:
        on = self._brake is not None and self._brake.on
        return self._brake if on and self._brake is not None else self._eyes

    async def _ask(self) -> World:
        world = await ask(self._eyes)
        return world if self._brake is None else await self._brake.seen(world)

    def _decide_anew(self, incident: Incident, state: State) -> Decision | None:
        """By what holds now; None where it is closed, or nothing is to be begun, by now."""
        current = next((one for one in state.incidents if one.id == incident.id), None)
        if current is None or state.setup is not self._setup or not self._deciding():
            return None
        return decide(current, state, self._clock.now())

    async def _state(self) -> State:
        setup = self._setup
        anew = setup is not self._turned_by
        state = await read_state(self._journal, setup, self._clock.now(), anew=anew)
        self._finished = state.finished
        return state


def _say(incident: Incident, decision: Decision) -> None:
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
