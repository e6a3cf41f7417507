"""Killed at moments that nobody has chosen, it restarts a worker once: the short version.

The long one is tests/heavy/test_many_kills.py.
"""

from __future__ import annotations

import random

import pytest
from tests.remediator.killing import killed_at_commit, killed_at_random


def test_killed_at_random_moments_it_acts_once_and_loses_nothing() -> None:
    killed_at_random(random.Random(1), 6)  # noqa: S311 - the same moments each time


@pytest.mark.parametrize("number", [3, 5])
def test_killed_while_it_writes_it_acts_once_and_loses_nothing(number: int) -> None:
    assert killed_at_commit(number, after=False)
