"""Harm 22: the remediator hangs, and nobody notices."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from tests.remediator.engine.test_crash_recovery import Program
from tests.remediator.live_host import Box
from tests.remediator.samples import delivery
from tests.waiting import until

STANDS_STILL = """
import asyncio
from trainwarden_remediator.engine import control_loop

async def stand_still(*_):
    await asyncio.sleep(3600)

control_loop.ALIVE_SECONDS = 2
control_loop.ControlLoop._decide_all = stand_still
"""


@pytest.fixture
def program(box: Box) -> Iterator[Program]:
    program = Program(box)
    yield program
    program.close()


def test_stopped_it_answers_no_health_check_and_goes_on_where_it_was(program: Program) -> None:
    """Without an answer the health check of compose, and Prometheus's `up`, call somebody."""
    worker = program.box.start_worker()
    child = program.start()
    child.send_signal(signal.SIGSTOP)
    try:
        assert program.ask("/-/healthy", timeout=3) == 0
        # nobody took this, so Alertmanager sends it again
        assert program.ask("/webhook", delivery(program.box.alert()), timeout=3) == 0
    finally:
        child.send_signal(signal.SIGCONT)
    assert program.ask("/webhook", delivery(program.box.alert())) == 200
    until(lambda: "healed" in program.box.journaled(), 60)
    assert worker.wait(60) == -signal.SIGTERM


def test_a_remediator_that_answers_without_decisions_reports_that_it_is_not_healthy(
    program: Program,
) -> None:
    """Supervisors that end a hung program query this: the watch of `make up`, a liveness probe."""
    program.start(STANDS_STILL)
    until(lambda: program.ask("/-/healthy") == 503, 60)
    assert program.ask("/-/ready") == 200
    assert program.ask("/webhook", delivery(program.box.alert())) == 200
    assert program.box.journaled() == ["alert"]
