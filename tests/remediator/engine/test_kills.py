"""Killed at moments that nobody has chosen, it restarts a worker once: the short version.

The long one is tests/heavy/test_many_kills.py.
"""

from __future__ import annotations

import random
import signal

import pytest
from tests.remediator.killing import killed_at_commit, killed_at_random, victim


def test_killed_at_random_moments_it_acts_once_and_loses_nothing() -> None:
    killed_at_random(random.Random(1), 6)  # noqa: S311 - the same moments each time


@pytest.mark.parametrize("number", [3, 5])
def test_killed_while_it_writes_it_acts_once_and_loses_nothing(number: int) -> None:
    assert killed_at_commit(number, after=False)


NOTING = """
from trainwarden_remediator.journal.journal import Journal
note = Journal.record_event
def refuse(self, kind, **facts):
    return die() if kind == "{kind}" else note(self, kind, **facts)
Journal.record_event = refuse
"""
TELLING = """
from trainwarden_remediator.engine import checkpoint_request
send_signal = checkpoint_request.send_signal
checkpoint_request.send_signal = lambda *who: {then}
"""


@pytest.mark.parametrize(
    ("patch", "asked"),
    [
        pytest.param(NOTING.format(kind="save_requested"), 1, id="before it is announced"),
        # the journal does not show whether it was asked, and to ask twice is the greater harm
        pytest.param(TELLING.format(then="die()"), 0, id="before it is asked"),
        pytest.param(TELLING.format(then="(send_signal(*who), die())"), 1, id="once it is asked"),
        pytest.param(NOTING.format(kind="save_result"), 1, id="before what came of it is noted"),
    ],
)
def test_killed_about_a_last_checkpoint_it_asks_for_none_twice(patch: str, asked: int) -> None:
    with victim(saves=True) as program:
        child = program.start(patch)
        program.hear()
        assert child.wait(60) == -signal.SIGKILL
        program.kill(child)
        program.come_to_an_end()
        program.check()
        assert program.diary.read_text().count("asked") == asked
