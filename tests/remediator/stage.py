"""An engine with a fake clock, fake observations and fake actions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.remediator.fake_clock import FakeClock, InlineThread
from tests.remediator.fakes import BlindKin, FakeAction, FakeObserver
from tests.remediator.samples import (
    FINGERPRINT,
    LATER,
    NOW,
    OTHER,
    ROLLOUT,
    TRAINER,
    WORKERS,
    make_alert,
    make_setup,
    make_worker,
)

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.engine.control_loop import ControlLoop
from trainwarden_remediator.journal.database import offline_transaction
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.transitions import reset_breaker


class Scene:
    """An engine, and the world that it is in."""

    def __init__(self, folder: Path, journal: Journal, clock: FakeClock, **changes: Any) -> None:
        self.folder = folder
        self.journal = journal
        self.clock = clock
        self.observer = FakeObserver(
            known={FINGERPRINT: AlertState.ACTIVE, LATER: AlertState.ACTIVE}
        )
        self.actions: dict[WorkerKey, FakeAction] = {}
        for key in (ROLLOUT, TRAINER, OTHER):
            self.observer.workers[key] = make_worker()
            self.actions[key] = FakeAction(key, self.observer, clock)
        self.setup = self.configured(**changes)
        self.context = EngineContext(
            setup=self.setup,
            journal=journal,
            observer=self.observer,
            clock=clock,
            tracker=BlindKin(),
            action_for=lambda target, *_: self.actions[target.key],
            thread_factory=InlineThread,
        )
        self.engine = ControlLoop(self.context)

    @property
    def action(self) -> FakeAction:
        return self.actions[ROLLOUT]

    def configured(self, **changes: Any) -> Setup:
        return make_setup(self.folder, *WORKERS, **changes)

    def spoil(self, journal: Any) -> None:
        """Let the engine write into another journal."""
        acting = self.engine._executor
        self.engine._journal = acting._journal = acting.action_runner._journal = journal

    def hear(self, **labels: Any) -> None:
        self.journal.record_alerts([make_alert(**{"starts_at": self.clock.now() - 20, **labels})])
        self.engine.wake()

    def close_breaker(self) -> bool:
        """As `resume` does, beside the remediator. Returns whether the breaker was open."""
        with offline_transaction(self.folder / "journal.db") as db:
            return reset_breaker(db, self.clock.now())

    def journaled(self) -> list[str]:
        """The journal, oldest first: reasons of decisions, results, outcomes, kinds of the rest."""
        return [
            event.facts.get("reason")
            or event.facts.get("result")
            or event.facts.get("outcome")
            or event.kind
            for event in reversed(self.journal.newest_events(1000))
        ]

    def done(self) -> list[str]:
        """As `journaled`, without decisions."""
        decided = {
            e.facts["reason"] for e in self.journal.newest_events(1000) if "reason" in e.facts
        }
        return [word for word in self.journaled() if word not in decided - {"resolved"}]

    async def pass_time(self, seconds: float, **hearing: Any) -> None:
        """Advance, with Alertmanager repeating the alert each minute as the shipped rules do."""
        end = self.clock.now() + seconds
        starts = NOW - 20
        while (left := end - self.clock.now()) > 0:
            await self.clock.advance(min(60, left))
            self.journal.record_alerts([make_alert(starts_at=starts, **hearing)])


@asynccontextmanager
async def going_on(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Meanwhile `work` goes on, which should never come to its end."""
    running = asyncio.create_task(work)
    try:
        yield
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


Stage = Callable[..., Any]
