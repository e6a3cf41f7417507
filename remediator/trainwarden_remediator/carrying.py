"""Carries orders out: acts, verifies, and journals each step before the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as NoAnswerError
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from trainwarden_exporter.lane import Lane
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.actions.base import Action, Announce, Saving, never
from trainwarden_remediator.exceptions import (
    ActionError,
    AmbiguousError,
    JournalError,
    NotNowError,
    UnknownError,
)
from trainwarden_remediator.grounds import is_saving, is_seen
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.playbooks import Verify
from trainwarden_remediator.sight import RunSight
from trainwarden_remediator.verification import Check
from trainwarden_remediator.world import ANSWER_SECONDS, Eyes

log = logging.getLogger(__name__)

VERIFY_SECONDS = 1.0
"""How often a worker is looked at while its health is verified."""

ASK_SECONDS = 20.0
"""How long an action may take to say what it would end."""

LAST_SECONDS = 15.0
"""How long an act under way is waited for when the program is told to stop."""

AGAIN_SECONDS = 2.0
"""How long after a failure what has happened is written down again."""


class Clock(Protocol):
    """Time, and waiting for it."""

    def now(self) -> float:
        """Unix seconds."""

    def monotonic(self) -> float:
        """Seconds that no setting of the clock changes."""

    async def sleep(self, seconds: float) -> None:
        """Return when so many seconds have passed."""


T = TypeVar("T")
Perform = Callable[[str, Announce, Saving], Mapping[str, Any]]
"""Acts, given the mark of the action."""


@dataclass(frozen=True, slots=True)
class Order:
    """An action to be carried out: `number` is the journal's.

    `protected`: what it ends may be writing a checkpoint. `keys` are all its workers, where these
    are several.
    """

    number: int
    key: WorkerKey
    action: Action
    verify: Verify
    checkpoint: float | None = None
    mendable: frozenset[WorkerKey] = frozenset()
    protected: bool = False
    keys: tuple[WorkerKey, ...] = ()


class Carrier:
    """Carries out one order at a time for whoever calls; the caller sees to it that none clash."""

    def __init__(
        self,
        journal: Journal,
        eyes: Callable[[], Eyes],
        *,
        clock: Clock,
        lane: Callable[[str], Lane] = Lane,
    ) -> None:
        self._journal = journal
        self._eyes = eyes
        self._clock = clock
        self.lane = lane
        self._asked: set[Action] = set()
        self._stopping = False

    async def ask(self, action: Action, question: Callable[[], T]) -> T:
        """The answer of an action, in a thread of its own.

        Raises ActionError, also when it takes too long: a process that waits in the kernel can
        hold up whoever reads about it, and then nothing else may wait for that.
        """
        if action in self._asked:
            raise ActionError("what was asked earlier has not been answered yet")
        try:
            lane = self.lane("ask an action")
        except RuntimeError as error:  # the box has run out of threads
            raise ActionError(f"cannot see the processes: {error}") from error
        answer = lane.call(question)
        lane.close()
        self._asked.add(action)
        answer.add_done_callback(lambda _: self._asked.discard(action))
        await asyncio.wait([answer], timeout=ASK_SECONDS)
        if not answer.done():
            raise ActionError(f"cannot see the processes: no answer within {ASK_SECONDS:g} s")
        try:
            return answer.result()
        except MemoryError as error:
            raise ActionError("cannot see the processes: no memory") from error

    async def carry_out(self, order: Order, perform: Perform) -> bool:
        """Act, and verify what came of it. Returns whether anybody could be had to act at all."""

        def announce(step: str, **facts: Any) -> None:
            self._journal.reached(order.number, step, **facts)

        began, saving = self._clock.now(), self._saving(order)
        mark = self._journal.mark_of(order.key, order.number)
        # A thread of its own: the webhook's must not wait for a worker's grace to pass.
        try:
            lane = self.lane(f"action {order.number}")
        except RuntimeError as error:  # as above; nothing is done, and so it is no attempt
            log.error("nobody to act", extra={**order.key._asdict(), "error": str(error)})
            await self.record(self._journal.finished, order.number, "interrupted", found=str(error))
            return False
        act = lane.call(lambda: perform(mark, announce, saving))
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
            await self.verify(order, began)
        return True

    async def record(self, write: Callable[..., None], *values: Any, **facts: Any) -> None:
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
                await self._clock.sleep(AGAIN_SECONDS)

    async def verify(self, order: Order, began: float) -> None:
        """Watch until all has been well for long enough, or for too long not.

        `began` is when it was begun, in Unix seconds.
        """
        verify = order.verify
        check = Check(order.key, began, verify, order.checkpoint, order.mendable, order.keys)
        start = self._clock.monotonic()
        patience, granted = verify.within + verify.steady, 0.0
        well_since: float | None = None
        while True:
            lost = remark = ""
            try:
                sight = await self._eyes().look()
            except UnknownError as error:
                ill = str(error)
            else:
                today = self._clock.now()
                ill = order.action.illness(sight, began) or check.illness(sight, today)
                granted, remark = check.grant(sight), check.remark(sight)
                lost = check.lost_cause(sight, today)
            now = self._clock.monotonic()
            well_since = None if ill else now if well_since is None else well_since
            if well_since is not None and now - well_since >= verify.steady:
                facts: dict[str, Any] = {"seconds": round(self._clock.now() - began, 1)}
                facts |= _how_far(sight.runs.get(order.key.run))
                if remark:
                    facts["remark"] = remark
                await self.record(self._journal.verified, order.number, "healed", **facts)
                log.info("healed", extra={**order.key._asdict(), **facts})
                return
            if ill and (lost or now - start >= patience + granted):
                ill = lost or ill
                await self.record(self._journal.verified, order.number, "not_healed", seen=ill)
                log.error("not healed", extra={**order.key._asdict(), "seen": ill})
                return
            await self._clock.sleep(VERIFY_SECONDS)

    async def _conclude(self, order: Order, act: asyncio.Future[Mapping[str, Any]]) -> bool:
        """Write down what came of an act. Returns whether it was done, or may have been."""
        error = act.exception()
        if isinstance(error, MemoryError):
            error = ActionError("no memory to go on")
        if error is None:
            await self.record(self._journal.finished, order.number, "done", **act.result())
            return True
        log.error(
            "action failed",
            exc_info=None if isinstance(error, ActionError) else error,
            extra={**order.key._asdict(), "error": str(error)},
        )
        if isinstance(error, NotNowError):
            await self.record(self._journal.let_be, order.number, str(error))
            return False
        if isinstance(error, AmbiguousError):
            await self.record(self._journal.finished, order.number, "failed", error=str(error))
            return True
        await self.record(self._journal.finished, order.number, "failed", error=str(error))
        await self.record(self._journal.verified, order.number, "not_healed")
        return False

    def _saving(self, order: Order) -> Saving:
        """Whether a checkpoint is being written, asked from the thread of the act.

        Not to know is to be careful: what is spared in vain is killed a little later. Nor is it
        known before the exporter, which looks only now and then, has looked again since it was
        first asked: a trainer may begin to save when it is told to end.
        """
        if not order.protected:
            return never
        loop = asyncio.get_running_loop()
        first_asked: float | None = None

        def ask() -> bool:
            nonlocal first_asked
            if first_asked is None:
                first_asked = self._clock.now()
            looking = self._eyes().look()
            try:
                answer = asyncio.run_coroutine_threadsafe(looking, loop)
            except RuntimeError:  # the program is at its end
                looking.close()
                return True
            try:
                sight = answer.result(ANSWER_SECONDS + 1)
            except (UnknownError, NoAnswerError, CancelledError, MemoryError):
                answer.cancel()
                return True
            if sight.saves_unknown_of(order.key.run):
                return True
            run = sight.runs.get(order.key.run)
            if run is None:
                return False
            seen, now = run.checkpoints_seen_at, self._clock.now()
            looked = seen is None or seen >= first_asked or not is_seen(seen, now)
            return not looked or is_saving(run, now)

        return ask


def _how_far(run: RunSight | None) -> Mapping[str, float]:
    """How far a run had come when it was seen to be well, for the report."""
    if run is None:
        return {}
    marks = {
        "step": run.step,
        "checkpoint": run.checkpoint,
        "resume_step": run.resume_step,
        "first_step": run.first_step,
    }
    return {name: mark for name, mark in marks.items() if mark is not None}
