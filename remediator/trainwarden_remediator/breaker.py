"""The breaker: when more is done on a box than can be right, nothing is done until a person acts.

Attempts are counted for each target; a cause that they share would go through them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from trainwarden_exporter.units import Seconds
from trainwarden_exporter.yamlfile import Section

LEAST_ACTIONS = 6
"""So many are allowed on a box of however few targets."""

LATCHED = "breaker"
"""The moment in the journal since when it is open,"""
REOPENED = "reopened"
"""and that at which a person last allowed actions again."""

HARMLESS = frozenset({"gpu_cleanup", "notify", "hold"})
"""Kinds of action that end nothing that works; they are neither counted nor stopped."""


class Breaker(Section):
    """How much may be done on this box before a person is asked."""

    actions: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Actions on all targets together within `within`; when one more is called for, none is taken
    until `trainwarden-remediator resume`. Twice as many as there are targets, and at least 6, when
    not given. Leftovers are cleaned from GPUs and people are called all the same."""
    within: Annotated[Seconds, Field(gt=0)] = 3600
    """Time over which they are counted."""

    def limit(self, targets: int) -> int:
        """How many are allowed on a box of so many targets."""
        return self.actions or max(LEAST_ACTIONS, 2 * targets)


@dataclass(frozen=True, slots=True)
class BreakerState:
    """How it stands, as the journal has it. Times are Unix seconds."""

    latched_at: float | None = None
    """Since when it is open and nothing is done; None while it is not so."""
    reopened_at: float = 0.0
    """When a person last allowed actions again."""

    @classmethod
    def of(cls, moments: Mapping[str, float]) -> BreakerState:
        """As the moments of the journal tell."""
        return cls(moments.get(LATCHED), moments.get(REOPENED, 0.0))

    def counted(self, begun: Iterable[float], within: float, now: float) -> int:
        """How many of the actions begun at these times count.

        Those of the future count: a clock set back must not make room for more.
        """
        since = max(now - within, self.reopened_at)
        return sum(at > since for at in begun)


UNTOUCHED = BreakerState()
