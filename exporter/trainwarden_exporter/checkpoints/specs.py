"""What is watched of a run's checkpoints, by its layout and its configuration together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.checkpoints.config import merged
from trainwarden_exporter.entries.place import RunPlace
from trainwarden_exporter.layouts import layout
from trainwarden_exporter.layouts.base import CheckpointLayout
from trainwarden_exporter.runs import RunConfig


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """One kind of checkpoint of one run."""

    run: str
    place: RunPlace
    layout: CheckpointLayout
    interval: float | None = None
    """Seconds between two of them, as configured."""

    @property
    def labels(self) -> tuple[str, str]:
        """The values of `run` and `checkpoint`."""
        return (self.run, self.layout.name)


def checkpoint_specs(run: RunConfig) -> tuple[CheckpointSpec, ...]:
    """All that are to be watched; of a run without a path, those that lie elsewhere."""
    known = layout(run.framework)
    chosen = merged(known.checkpoints if run.path else (), run.checkpoints)
    templates = [
        *(known.templates if run.path else ()),
        *(template for one in run.checkpoints for _, template in one.templates),
    ]
    place = RunPlace(
        run.path or Path("/"),
        tuple(dict.fromkeys(templates)),
        tuple(sorted(run.variables.items())),
    )
    intervals = {one.name: one.interval for one in run.checkpoints}
    return tuple(CheckpointSpec(run.name, place, one, intervals.get(one.name)) for one in chosen)
