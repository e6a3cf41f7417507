"""Specs of a run's rollouts, from its layout and its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from trainwarden_exporter.frameworks.base import Phase, RolloutLayout
from trainwarden_exporter.step_dirs.locations import RunLocation

DEFAULT_ROLLOUT = "batches"
"""Label `rollout` of a run without known rollouts: for what its log reports about batches."""

LAG_LIMIT = 1
"""For batches. A trainer in step lags by one while it waits, and never by two."""


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """One kind of rollouts of one run."""

    run: str
    name: str
    carries: Literal["batches", "weights"]
    location: RunLocation
    layout: RolloutLayout | None = None
    """None for rollouts without files."""
    ranks: int | None = None
    lag_limit: int | None = None
    staleness_limit: int | None = None

    @property
    def labels(self) -> tuple[str, str]:
        return (self.run, self.name)


class ProgressSource(Protocol):
    """Source of the progress of runs. Thread-safe."""

    def step(self, run: str) -> int | None:
        """Returns completed steps, counted from one; None while unknown."""

    def phase(self, run: str) -> tuple[Phase, float] | None:
        """Returns the phase and its start (Unix seconds); None while unknown."""
