from __future__ import annotations

import pytest

from trainwarden_exporter.processes import restart_loop

NOW = 10_000.0


def test_starts_are_recent_for_ten_minutes() -> None:
    assert restart_loop.recent_starts([NOW - 601, NOW - 599, NOW], NOW) == (NOW - 599, NOW)


def test_they_come_in_order() -> None:
    assert restart_loop.recent_starts([NOW - 1, NOW - 9, NOW - 5], NOW) == (
        NOW - 9,
        NOW - 5,
        NOW - 1,
    )


def test_what_lies_far_ahead_is_of_another_clock() -> None:
    assert restart_loop.recent_starts([NOW + 30, NOW + 3600], NOW) == (NOW + 30,)


def test_a_thousand_are_enough() -> None:
    many = [NOW - 500 + number / 10 for number in range(3000)]
    kept = restart_loop.recent_starts(many, NOW)
    assert len(kept) == 1000
    assert kept[-1] == max(many)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], None),
        ([0], None),
        ([0, 17], None),
        ([0, 17, 34], 17),
        ([34, 0, 17], 17),
        ([0, 17, 34, 51, 300], 17),
    ],
)
def test_the_period_is_the_median_distance_of_three_or_more(
    times: list[float], expected: float | None
) -> None:
    assert restart_loop.median_interval(times) == expected


def test_what_starts_together_is_one_start() -> None:
    ranks = [0, 0.1, 0.2, 30, 30.1, 30.2, 60, 60.1, 60.2]
    assert restart_loop.median_interval(ranks, per_launch=3) == pytest.approx(30)
    assert restart_loop.median_interval(ranks[:6], per_launch=3) is None


@pytest.mark.parametrize(
    ("times", "looping"),
    [
        ([0], False),
        ([0, 17], False),  # one restart, or a deploy
        ([0, 17, 34], True),
        ([0, 150, 300], False),
        ([0, 150, 300, 450], True),
    ],
)
def test_a_loop_is_reported_as_the_shipped_rules_do(times: list[float], looping: bool) -> None:
    assert restart_loop.is_loop(times) == looping
    ranks = [time + rank / 10 for time in times for rank in range(4)]
    assert restart_loop.is_loop(ranks, per_launch=4) == looping
