"""A storm of deliveries: all of it journaled, the budget kept, and nothing answered 5xx.

How long the answers take is measured by bench/webhook_storm.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from tests.remediator.conftest import TOKEN, Box, until
from tests.remediator.test_crash import Program

import webhook_storm as storm

ALERTS = 2_000
DELIVERIES = 200

HIDES_ITS_MARK = (
    "import os, sys; os.environ.pop('TRAINWARDEN_ACTION', 0); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
"""As the exporter of the box shows it, such a worker leaks for ever."""


@pytest.fixture
def program(box: Box) -> Iterator[Program]:
    program = Program(box)
    yield program
    program.close()


async def test_a_storm_is_heard_whole_and_costs_no_more_than_the_budget(
    program: Program,
) -> None:
    box = program.box
    start = [sys.executable, "-c", HIDES_ITS_MARK, *box.command[1:]]
    target = {"run": "demo", "worker": "rollout-0", "process": {"start": start, "grace": "1s"}}
    verify = {"within": "1s", "steady": "0s"}
    box.configure(
        targets=[{**target, "cooldown": 0, "attempts": 2, "attempts_window": "6h"}],
        playbooks={"restart_leaking_worker": {"trouble": "over_memory_limit", "verify": verify}},
    )
    box.known = {storm.fingerprint(number): "active" for number in range(ALERTS + DELIVERIES)}
    box.start_worker()
    program.start()
    url = f"http://127.0.0.1:{program.port}/webhook"
    starts = datetime.now(UTC)
    about = {"run": "demo", "worker": "rollout-0"}
    bodies = [storm.body(range(ALERTS), starts, **about)]
    bodies += [storm.body([ALERTS + number], starts, **about) for number in range(DELIVERIES)]
    answers = await storm.post_all(url, bodies, TOKEN)
    assert {answer.status for answer in answers} == {200}
    journal = box.folder / "state" / "journal.db"
    heard = storm.counted(journal, "SELECT count(*) FROM incident")
    assert heard == ALERTS + DELIVERIES
    undecided = "SELECT count(*) FROM incident WHERE said IS NULL"
    until(lambda: storm.counted(journal, undecided) == 0, 120)
    assert storm.counted(journal, "SELECT count(*) FROM action") <= 2
    assert len(box.workers()) <= 1
