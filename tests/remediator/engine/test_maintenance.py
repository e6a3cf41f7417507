"""What goes on beside the deciding, where it fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.remediator.fake_clock import FakeClock, InlineThread
from tests.remediator.fakes import BlindKin, FakeObserver
from tests.remediator.samples import make_setup

from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.engine.maintenance import PRUNE_SECONDS, Maintenance
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.journal import Journal


@pytest.mark.parametrize(
    ("error", "message"),
    [(MemoryError(), "out of memory"), (JournalError("disk full"), "disk full")],
)
async def test_a_journal_that_cannot_be_pruned_is_reported_with_its_reason_and_tried_again(
    *,
    journal: Journal,
    clock: FakeClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    message: str,
) -> None:
    tries: list[int] = []

    def prune(*_: object) -> None:
        tries.append(1)
        raise error

    monkeypatch.setattr(journal, "prune", prune)
    upkeep = Maintenance(
        EngineContext(
            setup=make_setup(tmp_path),
            journal=journal,
            observer=FakeObserver(),
            clock=clock,
            tracker=BlindKin(),
            thread_factory=InlineThread,
        )
    )
    running = asyncio.create_task(upkeep.run())
    await clock.settle()
    await clock.advance(PRUNE_SECONDS)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    records = [one for one in caplog.records if one.msg == "journal not pruned"]
    assert [vars(one)["error"] for one in records] == [message, message]
    assert len(tries) == len(records)
