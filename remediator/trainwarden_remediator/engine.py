"""Decides again and again, and has carried out what was decided."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import replace

from trainwarden_exporter.lane import Lane
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.actions import action_for
from trainwarden_remediator.actions.base import Action
from trainwarden_remediator.brake import Brake
from trainwarden_remediator.carrying import Carrier, Clock, Order
from trainwarden_remediator.config import Setup
from trainwarden_remediator.decision import Decision, Incident, State, Verdict
from trainwarden_remediator.evidence.occasion import Occasion, before_act, occasion_of
from trainwarden_remediator.exceptions import ActionError, JournalError, LeftAloneError
from trainwarden_remediator.holdfile import Hold, read_holds
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.kin import KinMemory
from trainwarden_remediator.playbooks import Verify
from trainwarden_remediator.policy import decide
from trainwarden_remediator.records import OpenAction
from trainwarden_remediator.rungs import holder
from trainwarden_remediator.savefirst import save_first
from trainwarden_remediator.settling import Settler
from trainwarden_remediator.sight import RunSight
from trainwarden_remediator.situation import read_state
from trainwarden_remediator.subjects import Subject
from trainwarden_remediator.targets import Budget, Target
from trainwarden_remediator.upkeep import Upkeep
from trainwarden_remediator.world import Eyes, World, ask

log = logging.getLogger(__name__)

TURN_SECONDS = 2.0
"""How often waiting incidents are decided again when nothing calls for it sooner."""

Evidence = Callable[[Occasion, Setup], Awaitable[None]]
"""Writes down how the box stands; never raises, and never takes long."""

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
        self._evidence = evidence
        self._journal = journal
        self._eyes = eyes
        self._clock = clock
        self._action_for = action_for
        self._deciding = deciding
        self._kin = KinMemory(journal) if kin is None else kin
        self._brake = brake
        self._carrier = Carrier(journal, self._present_eyes, clock=clock, lane=lane)
        self._settler = Settler(journal, self._carrier, clock=clock, why_not=self._why_not_finish)
        self._actions: dict[WorkerKey, Action] = {}
        self._retired: list[Action] = []
        self._finished: frozenset[WorkerKey] = frozenset()
        self._turned_by: Setup | None = None
        """By what all was decided in some turn."""
        self._upkeep = Upkeep(journal, self._kin, lambda: self._setup, clock=clock, lane=lane)
        self._wake = asyncio.Event()
        self._heard = 0
        self._moved_at = clock.monotonic()
        self.turned_at: float | None = None
        """When it last came to the end of a turn, in Unix seconds."""

    def use(self, setup: Setup, eyes: Eyes) -> None:
        """Go by another configuration from the next decision on.

        An action under way ends as it began.
        """
        self._setup = setup
        self._eyes = eyes
        predecessors, self._actions = self._actions, {}
        for key, action in predecessors.items():
            if (budget := setup.config.budget(key)) is not None:
                self._actions[key] = self._action_for(budget, setup, self._kin)
                self._actions[key].adopt(action)
            self._retired.append(action)
        self._wake.set()

    def wake(self) -> None:
        """Something was heard: decide soon."""
        self._heard += 1
        self._wake.set()

    def is_alive(self) -> bool:
        """Whether it moves on; one that does not is better started anew."""
        return self._clock.monotonic() - self._moved_at < ALIVE_SECONDS

    async def run(self) -> None:
        """Settle what a crash left open, then decide for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._upkeep.run(), name="upkeep")
            for left in await asyncio.to_thread(self._journal.unfinished):
                group.create_task(self._settle(left), name=f"settle action {left.id}")
            while True:
                self._wake.clear()
                began = self._clock.monotonic()
                try:
                    if self._deciding():
                        await self._turn(group)
                        self.turned_at = self._clock.now()
                except JournalError as error:
                    log.error("journal failed", extra={"error": str(error)})
                await asyncio.to_thread(self._tidy)
                self._move()
                took = self._clock.monotonic() - began
                if took > LONG_SECONDS:  # in a storm, leave as much time to the webhooks
                    await self._clock.sleep(min(took, MOST_REST_SECONDS))
                await self._pause()

    async def _pause(self) -> None:
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._clock.sleep(TURN_SECONDS))
            woken = group.create_task(self._wake.wait())
            await asyncio.wait({timer, woken}, return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
            woken.cancel()

    def _move(self) -> None:
        self._moved_at = self._clock.monotonic()

    def _tidy(self) -> None:
        for key in self._finished - self._actions.keys():
            if (budget := self._setup.config.budget(key)) is not None:
                self._action(budget)
        for key, action in self._actions.items():
            action.tidy()
            with suppress(JournalError):  # seen again in the next turn
                self._note_end(key, action)
        self._retired = [action for action in self._retired if action.tidy()]

    def _note_end(self, key: WorkerKey, action: Action) -> None:
        """Keep that a worker has finished, until it is seen to run again."""
        known, finished = key in self._finished, action.finished()
        if finished is None and known:
            finished = not self._kin.roots(key)
        if finished is not None and finished != known:
            self._journal.ended_by_itself(key, finished=finished)

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
                decision, processes = await self._prepare(decision, decision.target)
            if decision.text != incident.said:
                news.append((incident, decision, state))
            if len(news) >= BREATH:
                await self._write_down(news, group)
            if decision.verdict is Verdict.ACT and decision.reason != "hold":
                await self._write_down(news, group)
                await self._begin(incident, decision, processes, state.world, group)
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

    async def _begin(
        self,
        incident: Incident,
        decision: Decision,
        processes: Collection[Subject],
        world: World | None,
        group: asyncio.TaskGroup,
    ) -> None:
        """Have done what was decided, beside all else."""
        if decision.target is None:
            await asyncio.to_thread(self._journal.asked, incident, decision.rung)
            return
        order = await self._intend(incident, decision, decision.target, processes, world)
        before = before_act(incident, order.key, order.number, processes, world)
        group.create_task(self._act(order, processes, before), name=f"action {order.number}")

    async def _decide(self, incident: Incident, state: State) -> tuple[Decision, State]:
        """What is done about it, and what that rests on: the world is asked where it must be."""
        decision = decide(incident, state, self._clock.now())
        if decision.verdict is Verdict.LOOK:
            # One look serves the whole turn, for all that only waits.
            seen = await self._ask()
            holds = await asyncio.to_thread(self._holds)
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
                group.create_task(self._take_evidence(occasion), name="take evidence")

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

    def _holds(self) -> tuple[Hold, ...]:
        return read_holds(self._setup.config.hold_file, self._clock.now())

    # acting

    async def _prepare(
        self, decision: Decision, target: Budget
    ) -> tuple[Decision, Collection[Subject]]:
        """`decision` to act and what that would end; or why it cannot be acted after all."""
        action = self._action(target)
        wait = replace(decision, verdict=Verdict.WAIT)
        try:
            processes = await self._carrier.ask(action, action.processes)
        except LeftAloneError as error:
            return replace(wait, reason="left_alone", detail=str(error)), ()
        except ActionError as error:
            return replace(wait, reason="world_unknown", detail=str(error)), ()
        if action.only_ends and not processes:
            return replace(wait, reason="no_candidate"), ()
        return decision, processes

    async def _intend(
        self,
        incident: Incident,
        decision: Decision,
        target: Budget,
        processes: Collection[Subject],
        world: World | None,
    ) -> Order:
        action = self._action(target)
        sight = world.sight if world else None
        run = sight.runs.get(target.key.run, RunSight()) if sight else RunSight()
        number = await asyncio.to_thread(
            self._journal.intend,
            *(incident.id, target.key, action.kind, processes),
            rung=decision.rung,
            step=run.step,
            checkpoint=run.checkpoint,
        )
        return self._order(number, incident.remediation, decision.rung, target, run.checkpoint)

    async def _act(self, order: Order, processes: Collection[Subject], before: Occasion) -> None:
        await self._take_evidence(before)
        if why := await self._save_first(order, processes):
            await self._carrier.record(
                self._journal.finished, order.number, "interrupted", found=why
            )
            self._wake.set()
            return
        perform = order.action.perform
        await self._carrier.carry_out(
            order, lambda mark, announce, saving: perform(mark, announce, processes, saving)
        )
        self._wake.set()

    async def _save_first(self, order: Order, processes: Collection[Subject]) -> str:
        """Have it save where it can be asked to. Returns why it must be left alone after all."""
        target = self._setup.config.budget(order.key)
        request = target.save if isinstance(target, Target) else None
        roots = [root for key in order.keys for root in self._kin.roots(key) if root in processes]
        if request is None or not processes or (request.signal is not None and not roots):
            return ""
        about = {"run": order.key.run, "worker": order.key.worker}
        await asyncio.to_thread(self._journal.note, "save", **about)
        came = await save_first(
            *(request, order.key, roots, order.checkpoint),
            eyes=self._present_eyes,
            lane=self._carrier.lane,
            clock=self._clock,
        )
        await asyncio.to_thread(self._journal.note, "saved", **about, came=came)
        holds = await asyncio.to_thread(self._holds)
        return "held meanwhile" if any(one.covers(order.key) for one in holds) else ""

    def _order(
        self, number: int, remediation: str, rung: int, target: Budget, checkpoint: float | None
    ) -> Order:
        playbook = self._setup.config.playbook(remediation)
        known = playbook is not None and rung < len(playbook.ladder)
        return Order(
            number,
            target.key,
            self._action(target),
            playbook.ladder[rung].verify if playbook and known else Verify(),
            checkpoint,
            mendable=frozenset(key for one in self._setup.config.targets for key in one.keys),
            protected=any(map(self._setup.trains, target.keys)),
            keys=target.keys,
        )

    def _action(self, target: Budget) -> Action:
        if target.key not in self._actions:
            self._actions[target.key] = self._action_for(target, self._setup, self._kin)
        return self._actions[target.key]

    async def _take_evidence(self, occasion: Occasion) -> None:
        if self._evidence is not None:
            await self._evidence(occasion, self._setup)

    # after a crash

    async def _settle(self, left: OpenAction) -> None:
        target = self._setup.config.budget(left.key)
        order = None
        if target is not None:
            order = self._order(left.id, left.remediation, left.rung, target, left.checkpoint)
        await self._settler.settle(left, order)
        self._wake.set()

    def _why_not_finish(self, left: OpenAction) -> str:
        """Why what was ended must not be started now, or nothing; blocks."""
        config = self._setup.config
        if config.mode == "observe":
            return "the mode is observe"
        if hold := next((one for one in self._holds() if one.covers(left.key)), None):
            return f"held {hold.told}".strip()
        if self._clock.now() - left.intent_at > config.forget_after:
            return "too long ago"
        target = config.budget(left.key)
        try:
            incidents = self._journal.open_incidents()
            actions = self._journal.past_actions(left.intent_at)
        except JournalError as error:
            return str(error)
        known = State(self._setup, incidents=incidents, actions=actions)
        alert = holder(target, known) if isinstance(target, Target) else ""
        return f"held while {alert} lasts" if alert else ""


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
