"""Harm 5: after an outage, what waited for days is worked off."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.remediator.engine.test_crash_recovery import Program
from tests.remediator.live_host import Box
from tests.remediator.samples import ROLLOUT, make_alert
from tests.waiting import until

from trainwarden_remediator.journal.journal import Journal

DAYS = 3 * 86_400


@pytest.fixture
def program(box: Box) -> Iterator[Program]:
    program = Program(box)
    yield program
    program.close()


@pytest.mark.parametrize("begun", [False, True])
def test_what_a_journal_of_three_days_ago_left_open_is_let_go(
    program: Program, *, begun: bool
) -> None:
    """Also where Alertmanager still lists it, and where it was already meant to be done."""
    box = program.box
    worker = box.start_worker()
    (box.folder / "state").mkdir()
    then = time.time() - DAYS
    journal = Journal(box.folder / "state" / "journal.db", clock=lambda: then)
    journal.record_alerts(
        [make_alert(fingerprint=f"{number:016x}", starts_at=then) for number in range(9)]
    )
    if begun:
        action = journal.record_intent(1, ROLLOUT, "restart", ())
        journal.record_step(action, "stop", processes=[])
    journal.close()
    box.known = {f"{number:016x}": "active" for number in range(9)}
    program.start()

    def forgotten() -> int:
        return sum(event.facts.get("reason") == "alert_stale" for event in box.events())

    until(lambda: forgotten() == 9)
    assert worker.poll() is None
    assert box.journaled().count("intent") == int(begun)
    assert not {"done", "start"} & set(box.journaled())
