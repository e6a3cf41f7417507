"""What must be known of a run's progress to tell whether its rollouts keep up."""

from __future__ import annotations

from typing import Protocol

from trainwarden_exporter.layouts.base import Phase


class Progress(Protocol):
    """Whoever knows how far the runs are; asked from any thread."""

    def step(self, run: str) -> int | None:
        """Steps done, counted from one; None while that is not known."""

    def phase(self, run: str) -> tuple[Phase, float] | None:
        """What the run is doing, and since when (unix seconds); None while that is not known."""
