"""Upper bounds: known values, and what they mean."""

from __future__ import annotations

import math
import random

import pytest

from bounds import rate_at_most, share_at_most


@pytest.mark.parametrize(
    ("count", "of", "bound"),
    [(0, 310, 0.00962), (0, 3000, 0.000998), (1, 10, 0.3942), (5, 5, 1.0), (0, 0, 1.0)],
)
def test_a_share_is_bounded_as_by_clopper_and_pearson(count: int, of: int, bound: float) -> None:
    assert share_at_most(count, of) == pytest.approx(bound, rel=2e-3)


@pytest.mark.parametrize(
    ("count", "exposure", "bound"), [(0, 1.0, 2.9957), (3, 1.0, 7.7537), (0, 104.0, 0.02880)]
)
def test_a_rate_is_bounded_as_of_poisson(count: int, exposure: float, bound: float) -> None:
    assert rate_at_most(count, exposure) == pytest.approx(bound, rel=2e-3)


def test_without_exposure_there_is_no_bound() -> None:
    assert rate_at_most(0, 0.0) == math.inf


def test_the_bound_is_above_the_truth_nineteen_times_of_twenty() -> None:
    rng = random.Random(7)  # noqa: S311 - no secret depends on it
    trials = 400
    kept = sum(
        share_at_most(sum(rng.random() < 0.05 for _ in range(100)), 100) >= 0.05
        for _ in range(trials)
    )
    assert kept / trials >= 0.93
