"""What is watched of a run's rollouts, by its layout and its configuration together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainwarden_exporter.entries.place import RunPlace
from trainwarden_exporter.layouts import layout
from trainwarden_exporter.layouts.base import RolloutLayout
from trainwarden_exporter.rollouts.config import RolloutConfig, merged
from trainwarden_exporter.runs import RunConfig

FLOW = "batches"
"""Label `rollout` of a run for which none is known: what its log says of batches."""

LAG_LIMIT = 1
"""For batches. A trainer in step needs one more than there is while it waits, and never two."""


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """One kind of thing that passes between the two sides of a run."""

    run: str
    name: str
    carries: Literal["batches", "weights"]
    place: RunPlace
    layout: RolloutLayout | None = None
    """None where it leaves no files."""
    ranks: int | None = None
    lag_limit: int | None = None
    staleness_limit: int | None = None
    interval: float | None = None

    @property
    def labels(self) -> tuple[str, str]:
        """The values of `run` and `rollout`."""
        return (self.run, self.name)


def rollout_specs(run: RunConfig) -> tuple[RolloutSpec, ...]:
    """All that are to be watched; of a run without a path, those that lie elsewhere."""
    known = layout(run.framework)
    templates = [
        *(known.templates if run.path else ()),
        *(template for one in run.rollouts for _, template in one.templates),
    ]
    place = RunPlace(
        run.path or Path("/"),
        tuple(dict.fromkeys(templates)),
        tuple(sorted(run.variables.items())),
    )
    chosen = merged(known.rollouts if run.path else (), run.rollouts)
    return tuple(_spec(run.name, name, place, one, config) for name, one, config in chosen)


def _spec(
    run: str,
    name: str,
    place: RunPlace,
    known: RolloutLayout | None,
    config: RolloutConfig | None,
) -> RolloutSpec:
    config = config or RolloutConfig(name=name)
    carries = known.carries if known else config.carries or "batches"
    lag_limit, staleness_limit = config.lag_limit, config.staleness_limit
    if known is not None:
        lag_limit = known.lag_limit if lag_limit is None else lag_limit
        staleness_limit = known.staleness_limit if staleness_limit is None else staleness_limit
        if lag_limit is None and carries == "batches":
            lag_limit = LAG_LIMIT
    return RolloutSpec(
        run,
        name,
        carries,
        place,
        known,
        config.ranks,
        lag_limit,
        staleness_limit,
        config.interval,
    )
