"""Harm 19: it crashes between intent and result. The long version is in tests/heavy."""

from __future__ import annotations

import pytest
from tests.remediator.killing import killed_at_commit


@pytest.mark.parametrize(("number", "after"), [(3, True), (4, False), (5, True), (6, False)])
def test_killed_around_a_commit_it_acts_once_and_loses_nothing(number: int, *, after: bool) -> None:
    """Received, decided, intent, stop, start, done: each is one commit at least."""
    assert killed_at_commit(number, after=after)
