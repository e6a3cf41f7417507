"""Compares when the ranks of a run reach the same point: a rank that is always last is slow.

Ranks that wait for each other in every step have the same step time, and the slow one is seen only
before that wait: it arrives later than the others. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

Arrivals = Mapping[int, float]
"""When a rank arrived (Unix seconds), by the number of the step or of the collective."""

WINDOW_SECONDS = 120.0
"""Age of steps that are compared, up to the newest one."""

MIN_STEPS = 10
"""Least number of steps that are compared: as many as that however old."""

MAX_LAG = 1.5
"""Steps between two ranks from which they do not wait for each other: nobody pays for that."""


def lags(ranks: Mapping[int, Arrivals]) -> Mapping[int, Sequence[float]]:
    """Returns by how many seconds each rank is later than the median of the others.

    Of the numbers that all ranks have, in their order; negative where it is earlier. Empty for
    fewer than two ranks.
    """
    if len(ranks) < 2:  # noqa: PLR2004 - a comparison takes two
        return {}
    late: dict[int, list[float]] = {rank: [] for rank in ranks}
    for number in sorted(set.intersection(*(set(arrivals) for arrivals in ranks.values()))):
        order = sorted(ranks, key=lambda rank: ranks[rank][number])
        times = [ranks[rank][number] for rank in order]
        for place, rank in enumerate(order):
            others = times[:place] + times[place + 1 :]
            middle = len(others) // 2
            late[rank].append(times[place] - (others[middle] + others[~middle]) / 2)
    return late


def lag_ratios(ranks: Mapping[int, Arrivals], now: float) -> Mapping[int, float]:
    """Returns the usual lag of each rank as share of a step.

    It is the median, so that a save of one rank or a slow step of another in turn does not count.
    Empty where fewer than MIN_STEPS are known, where the last one is long ago at `now` (Unix
    seconds), and for ranks that do not wait for each other.
    """
    if len(ranks) < 2:  # noqa: PLR2004 - a comparison takes two
        return {}
    common = set.intersection(*(set(arrivals) for arrivals in ranks.values()))
    first = {number: min(arrivals[number] for arrivals in ranks.values()) for number in common}
    numbers = sorted(common)
    recent = [one for one in numbers if first[one] >= first[numbers[-1]] - WINDOW_SECONDS]
    used = numbers[-max(MIN_STEPS, len(recent)) :]
    if len(used) < MIN_STEPS:
        return {}
    step = median((first[new] - first[old]) / (new - old) for old, new in pairwise(used))
    if step <= 0 or now - first[used[-1]] > max(WINDOW_SECONDS, 3 * step):
        return {}
    found = lags({rank: {one: at[one] for one in used} for rank, at in ranks.items()})
    ratios = {rank: median(late) / step for rank, late in found.items()}
    return ratios if max(map(abs, ratios.values())) <= MAX_LAG else {}
