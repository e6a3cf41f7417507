"""Carries decisions out: looks, acts, verifies, and journals each step before the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from trainwarden_exporter.lane import Lane
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.actions import action_for
from trainwarden_remediator.actions.base import Action, Announce, Standing
from trainwarden_remediator.config import Budget, Setup, Verify
from trainwarden_remediator.exceptions import ActionError, JournalError, UnknownError
from trainwarden_remediator.journal import Journal, OpenAction
from trainwarden_remediator.policy import Decision, Incident, State, Verdict, decide
from trainwarden_remediator.world import Eyes, ask

log = logging.getLogger(__name__)

TURN_SECONDS = 2.0
"""How often waiting incidents are decided again when nothing calls for it sooner."""

VERIFY_SECONDS = 1.0
"""How often a worker is looked at while its health is verified."""

ASK_SECONDS = 20.0
"""How long an action may take to say what it would end."""

LAST_SECONDS = 15.0
"""How long an act under way is waited for when the program is told to stop."""


class Clock(Protocol):
    """Time, and waiting for it."""

    def now(self) -> float:
        """Unix seconds."""

    async def sleep(self, seconds: float) -> None:
        """Return when so many seconds have passed."""


T = TypeVar("T")
Perform = Callable[[int, Announce], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Order:
    """An action to be carried out: `number` is the journal's."""

    number: int
    key: WorkerKey
    action: Action
    verify: Verify


class Engine:
    """The one place where decisions are made and acted upon, so that no two can overlap."""

    def __init__(
        self,
        setup: Setup,
        journal: Journal,
        eyes: Eyes,
        *,
        clock: Clock,
        action_for: Callable[[Budget, Setup], Action] = action_for,
        lane: Callable[[str], Lane] = Lane,
    ) -> None:
        self._setup = setup
        self._journal = journal
        self._eyes = eyes
        self._clock = clock
        self._action_for = action_for
        self._lane = lane
        self._actions: dict[WorkerKey, Action] = {}
        self._retired: list[Action] = []
        self._asked: set[Action] = set()
        self._stopping = False
        self._wake = asyncio.Event()

    def use(self, setup: Setup, eyes: Eyes) -> None:
        """Go by another configuration from the next decision on.

        An action under way ends as it began.
        """
        self._setup = setup
        self._eyes = eyes
        predecessors, self._actions = self._actions, {}
        for key, action in predecessors.items():
            if (budget := setup.config.budget(key)) is not None:
                self._actions[key] = self._action_for(budget, setup)
                self._actions[key].adopt(action)
            self._retired.append(action)
        self._wake.set()

    def wake(self) -> None:
        """Something was heard: decide soon."""
        self._wake.set()

    async def run(self) -> None:
        """Settle what a crash left open, then decide for ever."""
        async with asyncio.TaskGroup() as group:
            for left in await asyncio.to_thread(self._journal.unfinished):
                group.create_task(self._settle(left), name=f"settle action {left.id}")
            while True:
                self._wake.clear()
                try:
                    await self._turn(group)
                except JournalError as error:
                    log.error("journal failed", extra={"error": str(error)})
                await asyncio.to_thread(self._tidy)
                await self._pause()

    async def _pause(self) -> None:
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._clock.sleep(TURN_SECONDS))
            woken = group.create_task(self._wake.wait())
            await asyncio.wait({timer, woken}, return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
            woken.cancel()

    def _tidy(self) -> None:
        for action in self._actions.values():
            action.tidy()
        self._retired = [action for action in self._retired if action.tidy()]

    # deciding

    async def _turn(self, group: asyncio.TaskGroup) -> None:
        state = await self._state()
        for incident in state.incidents:
            if any(a.incident == incident.id and a.ended_at is None for a in state.actions):
                continue  # what is being done about it is the decision
            decision = decide(incident, state, self._clock.now())
            if decision.verdict is Verdict.LOOK:
                # One look serves the whole turn, for all that only waits.
                world = await ask(self._eyes)
                held = await asyncio.to_thread(is_held, state.config.hold_file)
                state = replace(state, world=world, held=held)
                decision = decide(incident, state, self._clock.now())
            processes: Collection[Identity] = ()
            if decision.verdict is Verdict.ACT and decision.target is not None:
                # To act takes a look of its own: a turn may be long, and all may have changed.
                known = await self._state()
                state = replace(known, world=await ask(self._eyes))
                if (anew := self._decide_anew(incident, state)) is None:
                    continue
                decision = anew
            if decision.verdict is Verdict.ACT and decision.target is not None:
                decision, processes = await self._prepare(decision, decision.target)
            if decision.text != incident.said:
                await asyncio.to_thread(self._journal.decided, incident, decision)
                _say(incident, decision)
            if decision.verdict is Verdict.ACT and decision.target is not None:
                await self._begin(incident, decision.target, processes, group)
                state = replace(await self._state(), world=state.world)

    def _decide_anew(self, incident: Incident, state: State) -> Decision | None:
        """By what holds now; None where it is closed, or another configuration holds, by now."""
        current = next((one for one in state.incidents if one.id == incident.id), None)
        if current is None or state.config is not self._setup.config:
            return None
        return decide(current, state, self._clock.now())

    async def _state(self) -> State:
        config = self._setup.config
        budgets = [*config.targets, *([config.gpu_cleanup] if config.gpu_cleanup else [])]
        window = max((max(b.attempts_window, b.cooldown) for b in budgets), default=0)
        incidents, actions, held = await asyncio.gather(
            asyncio.to_thread(self._journal.open_incidents),
            asyncio.to_thread(self._journal.past_actions, self._clock.now() - window),
            asyncio.to_thread(is_held, config.hold_file),
        )
        return State(config=config, held=held, incidents=incidents, actions=actions)

    # acting

    async def _prepare(
        self, decision: Decision, target: Budget
    ) -> tuple[Decision, Collection[Identity]]:
        """`decision` to act and what that would end; or why it cannot be acted after all."""
        action = self._action(target)
        try:
            processes = await self._ask(action, action.processes)
        except ActionError as error:
            return Decision(Verdict.WAIT, "world_unknown", target, str(error)), ()
        if action.only_ends and not processes:
            return Decision(Verdict.WAIT, "no_candidate", target), ()
        return decision, processes

    async def _ask(self, action: Action, question: Callable[[], T]) -> T:
        """The answer of an action, in a thread of its own.

        Raises ActionError, also when it takes too long: a process that waits in the kernel can
        hold up whoever reads about it, and then nothing else may wait for that.
        """
        if action in self._asked:
            raise ActionError("what was asked earlier has not been answered yet")
        lane = self._lane("ask an action")
        answer = lane.call(question)
        lane.close()
        self._asked.add(action)
        answer.add_done_callback(lambda _: self._asked.discard(action))
        await asyncio.wait([answer], timeout=ASK_SECONDS)
        if not answer.done():
            raise ActionError(f"cannot see the processes: no answer within {ASK_SECONDS:g} s")
        return answer.result()

    async def _begin(
        self,
        incident: Incident,
        target: Budget,
        processes: Collection[Identity],
        group: asyncio.TaskGroup,
    ) -> None:
        action = self._action(target)
        number = await asyncio.to_thread(
            self._journal.intend, incident.id, target.key, action.kind, processes
        )
        order = _Order(number, target.key, action, self._verify_by(incident.remediation))
        perform = partial(action.perform, meant=processes)
        group.create_task(self._carry_out(order, perform), name=f"action {number}")

    def _action(self, target: Budget) -> Action:
        if target.key not in self._actions:
            self._actions[target.key] = self._action_for(target, self._setup)
        return self._actions[target.key]

    def _verify_by(self, remediation: str) -> Verify:
        playbook = self._setup.config.playbook(remediation)
        return playbook.verify if playbook else Verify()

    async def _carry_out(self, order: _Order, perform: Perform) -> None:
        def announce(step: str, **facts: Any) -> None:
            self._journal.reached(order.number, step, **facts)

        began = self._clock.now()
        # A thread of its own: the webhook's must not wait for a worker's grace to pass.
        lane = self._lane(f"action {order.number}")
        act = lane.call(lambda: perform(order.number, announce))
        lane.close()
        try:
            await asyncio.wait([act])
        except asyncio.CancelledError:
            self._stopping = True
            raise
        finally:
            # Also when told to stop: half an act done and nobody to do the rest is the worst end.
            await asyncio.wait([act], timeout=LAST_SECONDS)
            done = act.done() and await self._conclude(order, act)
        if done:
            await self._verify(order, began)
        self._wake.set()

    async def _conclude(self, order: _Order, act: asyncio.Future[Mapping[str, Any]]) -> bool:
        """Write down what came of an act. Returns whether it was done."""
        error = act.exception()
        if error is None:
            await self._record(self._journal.finished, order.number, "done", **act.result())
            return True
        log.error(
            "action failed",
            exc_info=None if isinstance(error, ActionError) else error,
            extra={**order.key._asdict(), "error": str(error)},
        )
        await self._record(self._journal.finished, order.number, "failed", error=str(error))
        await self._record(self._journal.verified, order.number, "not_healed")
        return False

    async def _record(self, write: Callable[..., None], *values: Any, **facts: Any) -> None:
        """Write down what has happened, however long the disk needs to take it.

        Meanwhile the action counts as under way, so that nothing else happens to the run.
        """
        while True:
            try:
                return await asyncio.to_thread(write, *values, **facts)
            except JournalError as error:
                log.error("journal failed", extra={"error": str(error)})
                if self._stopping:
                    raise  # the next start settles what could not be written
                await self._clock.sleep(TURN_SECONDS)

    async def _verify(self, order: _Order, began: float) -> None:
        """Watch until all has been well for long enough, or for too long not."""
        verify = order.verify
        deadline = self._clock.now() + verify.within + verify.steady
        well_since: float | None = None
        while True:
            try:
                ill = order.action.illness(await self._eyes.look(), began)
            except UnknownError as error:
                ill = str(error)
            now = self._clock.now()
            if ill:
                well_since = None
            elif well_since is None:
                well_since = now
            if well_since is not None and now - well_since >= verify.steady:
                facts = {"seconds": round(now - began, 1)}
                await self._record(self._journal.verified, order.number, "healed", **facts)
                log.info("healed", extra={**order.key._asdict(), **facts})
                return
            if now >= deadline:
                await self._record(self._journal.verified, order.number, "not_healed", seen=ill)
                log.error("not healed", extra={**order.key._asdict(), "seen": ill})
                return
            await self._clock.sleep(VERIFY_SECONDS)

    # after a crash

    async def _settle(self, left: OpenAction) -> None:
        """Bring an action that a crash cut short to its end: by looking, never by repeating it."""
        target = self._setup.config.budget(left.key)
        if target is None:
            why = "it is no target any more"
            if left.result is None:
                await self._interrupted(left, why)
            else:
                await self._record(self._journal.verified, left.id, "not_healed", seen=why)
            return
        action = self._action(target)
        order = _Order(left.id, left.key, action, self._verify_by(left.remediation))
        if left.result is not None:
            await self._verify(order, left.intent_at)
            return
        standing = await self._await_end(left, action)
        match standing:
            case Standing.STARTED:
                await self._record(self._journal.finished, left.id, "done", settled=standing.value)
                await self._verify(order, left.intent_at)
            case Standing.ENDED if left.reached is not None:
                if why := await self._why_not_finish(left):
                    await self._interrupted(left, f"ended, not started again: {why}")
                else:
                    await self._carry_out(order, action.finish)
            case _:
                await self._interrupted(left, standing.value)
        self._wake.set()

    async def _await_end(self, left: OpenAction, action: Action) -> Standing:
        """How things stand; what was told to end is given its time to do so."""
        deadline = self._clock.now() + action.grace
        while True:
            try:
                standing = await self._ask(
                    action, partial(action.standing, left.id, left.processes)
                )
            except ActionError as error:
                log.error("cannot settle", extra={**left.key._asdict(), "error": str(error)})
            else:
                told = left.reached is not None
                if standing is not Standing.UNTOUCHED or not told or self._clock.now() >= deadline:
                    return standing
            await self._clock.sleep(VERIFY_SECONDS)

    async def _why_not_finish(self, left: OpenAction) -> str:
        config = self._setup.config
        if config.mode == "observe":
            return "the mode is observe"
        if await asyncio.to_thread(is_held, config.hold_file):
            return "held"
        if self._clock.now() - left.intent_at > config.forget_after:
            return "too long ago"
        return ""

    async def _interrupted(self, left: OpenAction, why: str) -> None:
        log.warning("action was cut short", extra={**left.key._asdict(), "found": why})
        await self._record(self._journal.finished, left.id, "interrupted", found=why)


def is_held(hold_file: Path) -> bool:
    """Whether a person has stopped all actions. Not being able to tell counts as held."""
    try:
        hold_file.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        log.error("cannot look for the hold file", extra={"error": str(error)})
    return True


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
