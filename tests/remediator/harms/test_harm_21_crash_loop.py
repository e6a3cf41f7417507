"""Harm 21: each start of the remediator begins with a fresh budget."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.remediator.fake_clock import FakeClock, InlineExecutor
from tests.remediator.samples import NOW
from tests.remediator.stage import Scene

from trainwarden_remediator.journal.journal import Journal


async def test_twenty_starts_of_the_remediator_share_one_budget(
    tmp_path: Path, clock: FakeClock
) -> None:
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    restarts = 0
    for _ in range(20):
        journal = Journal(tmp_path / "journal.db", clock=clock)
        scene = Scene(tmp_path, journal, clock, cooldown=0, attempts=3)
        scene.action.heal = {}
        running = asyncio.create_task(scene.engine.run())
        scene.hear(starts_at=NOW - 20)
        # long enough to act, and to see that it did not help
        await clock.advance(90)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        restarts += len(scene.action.restarts)
        journal.close()
    assert restarts == 3
