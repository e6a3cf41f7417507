"""Upper bounds of what was counted, at a confidence of 95 %: no events is no rate of zero."""

from __future__ import annotations

import math
from collections.abc import Callable

CONFIDENCE = 0.95


def share_at_most(count: int, of: int) -> float:
    """The largest share that still makes `count` or fewer in `of` trials as likely as 5 %.

    One-sided, after Clopper and Pearson. 1 without trials.
    """
    if count >= of:
        return 1.0
    return _root(lambda share: _binomial(count, of, share), 0.0, 1.0)


def rate_at_most(count: int, exposure: float) -> float:
    """The same of events per unit of `exposure`, as of a Poisson process. Infinite without any."""
    if exposure <= 0:
        return math.inf
    return _root(lambda mean: _poisson(count, mean), 0.0, 10.0 + 4.0 * count) / exposure


def _root(likelihood: Callable[[float], float], low: float, high: float) -> float:
    """Where a likelihood that falls from 1 to 0 is 5 %."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if likelihood(middle) > 1 - CONFIDENCE else (low, middle)
    return high


def _binomial(count: int, of: int, share: float) -> float:
    """The chance of `count` or fewer."""
    if share <= 0:
        return 1.0
    if share >= 1:
        return 0.0
    odds = math.log(share), math.log1p(-share)
    return sum(
        math.exp(
            math.lgamma(of + 1)
            - math.lgamma(one + 1)
            - math.lgamma(of - one + 1)
            + one * odds[0]
            + (of - one) * odds[1]
        )
        for one in range(count + 1)
    )


def _poisson(count: int, mean: float) -> float:
    if mean <= 0:
        return 1.0
    return sum(
        math.exp(one * math.log(mean) - mean - math.lgamma(one + 1)) for one in range(count + 1)
    )
