"""The ranks of a run that report each step, and what the exporter makes of their times."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Mapping

from trainwarden.heartbeat import MAX_STEPS, keep_step
from trainwarden_exporter.processes.rank_lags import WINDOW_SECONDS, lag_ratios
from verdicts.page import Page
from verdicts.shapes import RUN

JITTER = 0.02
"""Standard deviation of a rank's time, as share of its part of the step."""


class Ranks:
    """Ranks that begin a step together, and report it before they wait for each other."""

    def __init__(self, name: str, count: int) -> None:
        self._rng = random.Random(name)  # noqa: S311 - no secret depends on it
        self._steps: dict[int, deque[tuple[int, float]]] = {
            rank: deque(maxlen=MAX_STEPS) for rank in range(count)
        }
        self.late = dict.fromkeys(self._steps, 0.0)
        """Seconds by which a rank takes longer than the others."""
        self._ratios: Mapping[int, float] = {}
        self._computed_until = math.inf
        """Until when they hold (Unix seconds)."""

    @property
    def wait(self) -> float:
        """Seconds for which the others wait for the slowest in each step."""
        return max(self.late.values(), default=0.0)

    def note(self, step: int, began: float, seconds: float) -> None:
        """All take their `seconds` of `step` (Unix seconds for `began`)."""
        for rank, steps in self._steps.items():
            own = seconds * self._rng.gauss(1 - 3 * JITTER, JITTER)
            keep_step(steps, step, began + own + self.late[rank])
        self._computed_until = -math.inf

    def put(self, page: Page, now: float) -> None:
        if now > self._computed_until:
            ranks = {rank: dict(steps) for rank, steps in self._steps.items()}
            self._ratios = lag_ratios(ranks, now)
            # without a further step they only become too old
            self._computed_until = now + WINDOW_SECONDS / 4 if self._ratios else math.inf
        for rank, ratio in self._ratios.items():
            page.put("trainwarden_training_rank_lag_ratio", ratio, RUN, str(rank))
