"""Which rank is late, by how much of a step, and when that says nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest

from trainwarden_exporter.processes.rank_lags import MIN_STEPS, lag_ratios, lags

Work = Callable[[int, int], float]
"""Seconds that a rank computes in a step, by rank and step."""


def synchronous(ranks: int, steps: int, work: Work) -> Mapping[int, Mapping[int, float]]:
    """When ranks that wait for the last one in every step arrive at that wait."""
    now = 0.0
    found: dict[int, dict[int, float]] = {rank: {} for rank in range(ranks)}
    for step in range(steps):
        for rank, arrivals in found.items():
            arrivals[step] = now + work(rank, step)
        now = max(arrivals[step] for arrivals in found.values())
    return found


def ratios(ranks: int, steps: int, work: Work) -> Mapping[int, float]:
    found = synchronous(ranks, steps, work)
    return lag_ratios(found, found[0][steps - 1])


def test_a_lag_is_the_time_after_the_median_of_the_others() -> None:
    assert lags({0: {1: 10.0}, 1: {1: 11.0}, 2: {1: 15.0}}) == {0: [-3.0], 1: [-1.5], 2: [4.5]}
    assert lags({0: {1: 10.0, 2: 20.0}, 3: {2: 20.5, 3: 9.0}}) == {0: [-0.5], 3: [0.5]}
    assert lags({0: {1: 10.0}}) == lags({}) == {}


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_a_rank_that_computes_longer_is_late_by_its_share_of_the_step(count: int) -> None:
    found = ratios(count, 60, lambda rank, _: 1.3 if rank == 1 else 1.0)
    assert found[1] == pytest.approx(0.3 / 1.3)
    assert max(lag for rank, lag in found.items() if rank != 1) <= 0.0


def test_two_slow_ranks_of_eight_are_both_late() -> None:
    found = ratios(8, 60, lambda rank, _: 1.5 if rank > 5 else 1.0)
    assert {rank for rank, lag in found.items() if lag > 0.1} == {6, 7}


@pytest.mark.parametrize("count", [2, 4, 8])
def test_no_rank_is_late_where_all_are_alike_or_another_one_is_slow_in_each_step(
    count: int,
) -> None:
    dice = random.Random(7)  # noqa: S311 - no secret
    slow = [dice.randrange(count) for _ in range(120)]
    for work in (
        lambda _rank, _step: dice.gauss(1.0, 0.02),
        lambda rank, step: dice.gauss(1.3 if rank == slow[step] and step % 3 else 1.0, 0.02),
        lambda rank, step: 9.0 if rank == 0 and step % 10 == 0 else 1.0,  # it saves
    ):
        assert max(ratios(count, 120, work).values()) < 0.1


def test_only_the_last_two_minutes_count_but_at_least_ten_steps() -> None:
    for until, late in ((370, True), (320, False)):
        found = ratios(4, 400, lambda rank, step: 1.5 if rank == 2 and step < until else 1.0)  # noqa: B023
        assert (found[2] > 0.3) is late
    found = ratios(4, 40, lambda rank, step: 90.0 if rank == 2 and step > 33 else 60.0)
    assert found[2] > 0.3  # six of the last ten
    assert ratios(4, MIN_STEPS - 1, lambda rank, _: 1.0 + rank) == {}


def test_steps_of_long_ago_say_nothing() -> None:
    found = synchronous(4, 60, lambda rank, _: 1.5 if rank == 3 else 1.0)
    assert lag_ratios(found, 90.0 + 119)[3] > 0.3
    assert lag_ratios(found, 90.0 + 121) == {}
    slow = synchronous(4, 20, lambda rank, _: 150.0 if rank == 3 else 100.0)
    assert lag_ratios(slow, 3000.0 + 299)[3] > 0.3


def test_ranks_that_do_not_wait_for_each_other_are_not_compared() -> None:
    alone = {rank: {step: step * (1.0 + rank / 10) for step in range(300)} for rank in range(4)}
    assert lag_ratios(alone, 299.0) == {}
    assert lag_ratios({0: {}, 1: {1: 1.0}}, 1.0) == {}
    stopped = {rank: dict.fromkeys(range(20), 5.0) for rank in range(2)}
    assert lag_ratios(stopped, 5.0) == {}
