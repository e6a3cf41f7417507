"""A storm of deliveries: all of it journaled, the budget kept, and nothing answered 5xx.

How long the answers take is measured by bench/webhook_storm.py.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pytest
from tests.remediator.engine.test_crash_recovery import Program
from tests.remediator.live_host import Box
from tests.remediator.samples import TOKEN, make_alert
from tests.waiting import until

import webhook_storm as storm
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.api.webhook import WriteBatcher
from trainwarden_remediator.exceptions import JournalError

ALERTS = 2_000
DELIVERIES = 200

HIDES_ITS_MARK = (
    "import os, sys; os.environ.pop('TRAINWARDEN_ACTION', 0); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
"""On the exporter's page of the host such a worker leaks for ever."""


@pytest.fixture
def program(box: Box) -> Iterator[Program]:
    program = Program(box)
    yield program
    program.close()


async def weathered(program: Program, alerts: int, deliveries: int) -> list[storm.Answer]:
    """The answers to one delivery of so many alerts, and to so many of one, when all is decided.

    All of it is journaled, the budget is kept, and every answer is that the delivery was accepted.
    """
    box = program.box
    start = [sys.executable, "-c", HIDES_ITS_MARK, *box.command[1:]]
    target = {"run": "demo", "worker": "rollout-0", "process": {"start": start, "grace": "1s"}}
    verify = {"timeout": "1s", "stable_for": "0s"}
    box.configure(
        targets=[{**target, "cooldown": 0, "attempts": 2, "attempts_window": "6h"}],
        playbooks={"restart_leaking_worker": {"condition": "over_memory_limit", "verify": verify}},
    )
    box.known = {storm.fingerprint(number): "active" for number in range(alerts + deliveries)}
    box.start_worker()
    program.start()
    url = f"http://127.0.0.1:{program.port}/webhook"
    starts = datetime.now(UTC)
    about = {"run": "demo", "worker": "rollout-0"}
    bodies = [storm.body(range(alerts), starts, **about)]
    bodies += [storm.body([alerts + number], starts, **about) for number in range(deliveries)]
    answers = await storm.post_all(url, bodies, TOKEN)
    assert {answer.status for answer in answers} == {200}
    journal = box.folder / "state" / "journal.db"
    received = storm.counted(journal, "SELECT count(*) FROM incident")
    assert received == alerts + deliveries
    undecided = "SELECT count(*) FROM incident WHERE last_decision IS NULL"
    until(lambda: storm.counted(journal, undecided) == 0, 600)
    assert storm.counted(journal, "SELECT count(*) FROM action") <= 2
    assert len(box.workers()) <= 1
    return answers


async def test_a_storm_is_accepted_whole_and_costs_no_more_than_the_budget(
    program: Program,
) -> None:
    await weathered(program, ALERTS, DELIVERIES)


# what comes at the same time


class Slow:
    """A journal that takes its time, and may have no room."""

    def __init__(self) -> None:
        self.written: list[list[str]] = []
        self.full = False
        self.may_go_on = threading.Event()
        self.begun = threading.Event()

    def __call__(self, alerts: Sequence[Alert]) -> None:
        self.begun.set()
        assert self.may_go_on.wait(60)
        if self.full:
            raise JournalError("disk full")
        self.written.append([alert.fingerprint for alert in alerts])


async def test_what_comes_while_something_is_written_is_written_together() -> None:
    slow = Slow()
    together = WriteBatcher(slow)
    alerts = [make_alert(fingerprint=storm.fingerprint(number)) for number in range(9)]
    first = asyncio.create_task(together.write(alerts[:1]))
    assert await asyncio.to_thread(slow.begun.wait, 60)
    rest = [asyncio.create_task(together.write([alert])) for alert in alerts[1:]]
    await asyncio.sleep(0)
    assert not first.done()
    slow.may_go_on.set()
    await asyncio.gather(first, *rest)
    names = [alert.fingerprint for alert in alerts]
    assert slow.written == [names[:1], names[1:]]


async def test_what_could_not_be_written_is_nobody_s_to_believe_in() -> None:
    slow = Slow()
    together = WriteBatcher(slow)
    slow.full = True
    slow.may_go_on.set()
    tasks = [asyncio.create_task(together.write([make_alert()])) for _ in range(5)]
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in found] == [JournalError] * 5
    slow.full = False
    await together.write([make_alert()])
    assert len(slow.written) == 1


@pytest.mark.parametrize("begun", [True, False])
async def test_a_client_that_gives_up_keeps_nobody_waiting(*, begun: bool) -> None:
    slow = Slow()
    together = WriteBatcher(slow)
    first = asyncio.create_task(together.write([make_alert()]))
    assert await asyncio.to_thread(slow.begun.wait, 60)
    leader = asyncio.create_task(together.write([make_alert()]))
    await asyncio.sleep(0)
    follower = asyncio.create_task(together.write([make_alert()]))
    await asyncio.sleep(0)
    (first if begun else leader).cancel()
    slow.may_go_on.set()
    found = await asyncio.gather(first, leader, follower, return_exceptions=True)
    kinds = [type(one) for one in found]
    failed = [asyncio.CancelledError, type(None), type(None)]
    assert kinds == (failed if begun else [type(None), asyncio.CancelledError, JournalError])
    await together.write([make_alert()])
