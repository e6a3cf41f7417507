"""What goes on beside the deciding, where it fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.remediator.conftest import BlindKin, FakeClock, InlineLane, make_setup

from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.upkeep import PRUNE_SECONDS, Upkeep


@pytest.mark.parametrize(
    ("error", "said"), [(MemoryError(), "no memory"), (JournalError("disk full"), "disk full")]
)
async def test_a_journal_that_cannot_be_pruned_is_told_of_with_its_reason_and_tried_again(
    *,
    journal: Journal,
    clock: FakeClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    said: str,
) -> None:
    tries: list[int] = []

    def prune(*_: object) -> None:
        tries.append(1)
        raise error

    monkeypatch.setattr(journal, "prune", prune)
    setup = make_setup(tmp_path)
    upkeep = Upkeep(journal, BlindKin(), lambda: setup, clock=clock, lane=InlineLane)
    running = asyncio.create_task(upkeep.run())
    await clock.settle()
    await clock.advance(PRUNE_SECONDS)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    records = [one for one in caplog.records if one.msg == "journal not pruned"]
    assert [vars(one)["error"] for one in records] == [said, said]
    assert len(tries) == len(records)
