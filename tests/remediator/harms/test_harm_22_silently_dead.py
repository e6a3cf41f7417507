"""Harm 22: the remediator hangs, and nobody notices."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from tests.remediator.conftest import Box, delivery, until
from tests.remediator.test_crash import Program

STANDS_STILL = """
import asyncio
from trainwarden_remediator import engine

async def stand_still(*_):
    await asyncio.sleep(3600)

engine.ALIVE_SECONDS = 2
engine.Engine._turn = stand_still
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
        assert program.ask("/-/healthy") == 0
        # nobody took this, so Alertmanager sends it again
        assert program.ask("/webhook", delivery(program.box.alert())) == 0
    finally:
        child.send_signal(signal.SIGCONT)
    assert program.ask("/webhook", delivery(program.box.alert())) == 200
    until(lambda: "healed" in program.box.told(), 60)
    assert worker.wait(5) == -signal.SIGTERM


def test_one_that_answers_and_decides_nothing_says_that_it_is_not_well(program: Program) -> None:
    """What ends those that hang asks for this: the watch of `make up`, a liveness probe."""
    program.start(STANDS_STILL)
    until(lambda: program.ask("/-/healthy") == 503, 60)
    assert program.ask("/-/ready") == 200
    assert program.ask("/webhook", delivery(program.box.alert())) == 200
    assert program.box.told() == ["alert"]
