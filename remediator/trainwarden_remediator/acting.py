"""Has done what was decided: from the intent to the word that it helped, also after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import replace

from trainwarden_exporter.lane import Lane
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.actions.base import Action
from trainwarden_remediator.carrying import Carrier, Clock, Order
from trainwarden_remediator.config import Setup
from trainwarden_remediator.decision import Decision, Incident, State, Verdict
from trainwarden_remediator.evidence.occasion import Occasion, before_act
from trainwarden_remediator.exceptions import (
    ActionError,
    JournalError,
    LeftAloneError,
    LostError,
)
from trainwarden_remediator.holdfile import Hold, read_holds
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.kin import KinMemory
from trainwarden_remediator.playbooks import Verify
from trainwarden_remediator.records import OpenAction
from trainwarden_remediator.rungs import holder
from trainwarden_remediator.savefirst import save_first
from trainwarden_remediator.settling import Settler
from trainwarden_remediator.sight import RunSight
from trainwarden_remediator.subjects import Subject
from trainwarden_remediator.targets import Budget, Target
from trainwarden_remediator.world import Eyes, World

Evidence = Callable[[Occasion, Setup], Awaitable[None]]
"""Writes down how the box stands; never raises, and never takes long."""


class Acting:
    """Goes by whatever `setup` and `eyes` are in force.

    `done` is called when an action has come to its end.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        setup: Callable[[], Setup],
        eyes: Callable[[], Eyes],
        clock: Clock,
        action_for: Callable[[Budget, Setup, KinMemory], Action],
        lane: Callable[[str], Lane],
        kin: KinMemory,
        evidence: Evidence | None,
        done: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._setup_in_force = setup
        self._eyes = eyes
        self._clock = clock
        self._action_for = action_for
        self._kin = kin
        self._evidence = evidence
        self._done = done
        self.carrier = Carrier(journal, eyes, clock=clock, lane=lane)
        self._settler = Settler(journal, self.carrier, clock=clock, why_not=self._why_not_finish)
        self._actions: dict[WorkerKey, Action] = {}
        self._retired: list[Action] = []

    @property
    def _setup(self) -> Setup:
        return self._setup_in_force()

    def use(self, setup: Setup) -> None:
        """Go by another configuration; an action under way ends as it began."""
        predecessors, self._actions = self._actions, {}
        for key, action in predecessors.items():
            if (budget := setup.config.budget(key)) is not None:
                self._actions[key] = self._action_for(budget, setup, self._kin)
                self._actions[key].adopt(action)
            self._retired.append(action)

    def tidy(self, finished: Collection[WorkerKey]) -> None:
        """Collect what has ended; `finished` are the workers that are known to have. Blocks."""
        for key in set(finished) - self._actions.keys():
            if (budget := self._setup.config.budget(key)) is not None:
                self._action(budget)
        for key, action in self._actions.items():
            action.tidy()
            with suppress(JournalError):  # seen again in the next turn
                self._note_end(key, action, known=key in finished)
        self._retired = [action for action in self._retired if action.tidy()]

    def _note_end(self, key: WorkerKey, action: Action, *, known: bool) -> None:
        """Keep that a worker has finished, until it is seen to run again."""
        finished = action.finished()
        if finished is None and known:
            finished = not self._kin.roots(key)
        if finished is not None and finished != known:
            self._journal.ended_by_itself(key, finished=finished)

    def holds(self) -> tuple[Hold, ...]:
        """What a person has stopped; blocks."""
        return read_holds(self._setup.config.hold_file, self._clock.now())

    # from a decision on

    async def prepare(
        self, decision: Decision, target: Budget
    ) -> tuple[Decision, Collection[Subject]]:
        """`decision` to act and what that would end; or why it cannot be acted after all."""
        action = self._action(target)
        wait = replace(decision, verdict=Verdict.WAIT)
        try:
            processes = await self.carrier.ask(action, action.processes)
        except LeftAloneError as error:
            return replace(wait, reason="left_alone", detail=str(error)), ()
        except ActionError as error:
            return replace(wait, reason="world_unknown", detail=str(error)), ()
        if action.only_ends and not processes:
            return replace(wait, reason="no_candidate"), ()
        return decision, processes

    async def begin(
        self,
        incident: Incident,
        decision: Decision,
        processes: Collection[Subject],
        world: World | None,
        group: asyncio.TaskGroup,
    ) -> None:
        """Have done what was decided, beside all else. Raises JournalError, and LostError."""
        if decision.target is None:
            await asyncio.to_thread(self._journal.asked, incident, decision.rung)
            return
        try:
            order = await self._intend(incident, decision, decision.target, processes, world)
            before = before_act(incident, order.key, order.number, processes, world)
            group.create_task(self._act(order, processes, before), name=f"action {order.number}")
        except MemoryError as error:
            raise LostError("no memory to carry out what may be meant already") from error

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
        await self.take_evidence(before)
        if why := await self._save_first(order, processes):
            # Decided again in the next turn, and not at once: what was in the way may be there yet.
            await self.carrier.record(
                self._journal.finished, order.number, "interrupted", found=why
            )
            return
        perform = order.action.perform
        if await self.carrier.carry_out(
            order, lambda mark, announce, saving: perform(mark, announce, processes, saving)
        ):
            self._done()

    async def _save_first(self, order: Order, processes: Collection[Subject]) -> str:
        """Have it save where it can be asked to. Returns why it must be left alone after all."""
        target = self._setup.config.budget(order.key)
        request = target.save if isinstance(target, Target) else None
        if request is None or not processes:
            return ""
        roots = [root for key in order.keys for root in self._kin.roots(key) if root in processes]
        try:
            came = await save_first(
                *(request, order.key, roots, order.checkpoint),
                subjects=roots or processes,
                journal=self._journal,
                remember=self._setup.config.forget_after,
                eyes=self._eyes,
                lane=self.carrier.lane,
                clock=self._clock,
            )
        except JournalError as error:
            return f"not asked to save: {error}"
        if not came:
            return ""
        about = {"run": order.key.run, "worker": order.key.worker}
        # It is asked by now, and is not to be asked again because that cannot be written down.
        await self.carrier.record(self._journal.note, "saved", **about, came=came)
        holds = await asyncio.to_thread(self.holds)
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

    async def take_evidence(self, occasion: Occasion) -> None:
        """Have it written down how the box stands."""
        if self._evidence is not None:
            await self._evidence(occasion, self._setup)

    # after a crash

    async def settle(self, left: OpenAction) -> None:
        """Bring to its end what a crash cut short."""
        target = self._setup.config.budget(left.key)
        order = None
        if target is not None:
            order = self._order(left.id, left.remediation, left.rung, target, left.checkpoint)
        await self._settler.settle(left, order)
        self._done()

    def _why_not_finish(self, left: OpenAction) -> str:
        """Why what was ended must not be started now, or nothing; blocks."""
        config = self._setup.config
        if config.mode == "observe":
            return "the mode is observe"
        if hold := next((one for one in self.holds() if one.covers(left.key)), None):
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
