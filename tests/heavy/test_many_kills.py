"""Killed at every step of its journal, and at hundreds of moments: `pytest tests/heavy`.

KILLS says how many (300 unless given).
"""

from __future__ import annotations

import os
import random

import pytest
from tests.remediator.killing import killed_at_commit, killed_at_random

KILLS = int(os.environ.get("KILLS", "300"))
IN_A_ROW = 3


@pytest.mark.parametrize("seed", range(-(-KILLS // IN_A_ROW)))
def test_killed_at_random_moments_it_acts_once_and_loses_nothing(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same moments each time
    killed_at_random(chance, IN_A_ROW, saves=seed % 2 == 1)


@pytest.mark.parametrize("saves", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_every_step_of_the_journal_it_acts_once_and_loses_nothing(
    *, after: bool, saves: bool
) -> None:
    number = 1
    while killed_at_commit(number, after=after, saves=saves):
        number += 1
    # at least: received, decided, meant, stop, start, result, outcome; with asked and saved
    assert number > (9 if saves else 7)
