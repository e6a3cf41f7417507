"""What exporter.yml says of a run's rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from trainwarden_exporter.entries.config import (
    CompleteConfig,
    EntryPattern,
    RankPattern,
    Template,
    check_places,
    layout_of,
)
from trainwarden_exporter.layouts.base import RolloutLayout
from trainwarden_exporter.units import Name, Seconds
from trainwarden_exporter.yamlfile import MisplacedError, Section


class RolloutConfig(Section):
    name: Name
    """Label `rollout`. Of one of the framework's own of this name, what is given here is replaced;
    another one is added. Without a folder, it is one that leaves no files: what the log says of it
    is held to the limits given here."""

    folder: Template | None = None
    """The folder that holds one batch, or one set of weights, an entry, relative to the run's path;
    it may hold names in braces and globs, as the framework's own do."""

    entry: EntryPattern | None = None
    """Regular expression for the whole name of an entry, with the group `step`."""

    complete: CompleteConfig | None = None
    """What proves an entry complete, ranks aside."""

    rank: RankPattern | None = None
    """Regular expression, with the group `rank`, for the whole path of a file in an entry that is
    one rank's share."""

    carries: Literal["batches", "weights"] | None = None
    """`batches` flow to the trainer, `weights` from it; batches when not given."""

    step_offset: int | None = None
    """What to add to the number in a name to have the trainer's step, counted from one, that
    consumes the batch or produced the weights."""

    ranks: Annotated[int, Field(gt=0)] | None = None
    """How many ranks a complete entry has; learned from those seen when not given."""

    lag_limit: Annotated[int, Field(ge=0)] | None = None
    """How many steps batches may be behind what the trainer needs next, or weights behind it."""

    staleness_limit: Annotated[int, Field(ge=0)] | None = None
    """How many steps the policy that made a batch may be older than the trainer's."""

    interval: Annotated[Seconds, Field(gt=0)] | None = None
    """How often an entry is to be expected; the median of those seen when not given."""

    @property
    def templates(self) -> tuple[tuple[str, str], ...]:
        """Those given, each with its key."""
        return () if self.folder is None else (("folder", self.folder),)

    def layout(self, base: RolloutLayout | None) -> RolloutLayout | None:
        """`base` with what is given here; None where nothing lies on disk.

        Raises MisplacedError where something is missing.
        """
        if base is None:
            if self.folder is None:
                self._refuse("entry", "complete", "rank", reason="means nothing without a folder")
                return None
            if self.entry is None or self.complete is None:
                missing = "entry" if self.entry is None else "complete"
                raise MisplacedError("needed: the framework has none of this name", missing)
            base = RolloutLayout(self.name, self.folder, self.entry, self.complete.proof())
        return replace(
            base,
            folder=self.folder or base.folder,
            entry=self.entry or base.entry,
            proof=base.proof if self.complete is None else self.complete.proof(),
            rank=self.rank or base.rank,
            carries=self.carries or base.carries,
            step_offset=base.step_offset if self.step_offset is None else self.step_offset,
        )

    def _refuse(self, *names: str, reason: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise MisplacedError(reason, name)


def _check(rollouts: tuple[RolloutConfig, ...], info: ValidationInfo) -> tuple[RolloutConfig, ...]:
    if (run := layout_of(info)) is None:
        return rollouts
    known = {layout.name: layout for layout in run.rollouts}
    check_places(rollouts, info, tuple(known))
    for index, rollout in enumerate(rollouts):
        try:
            layout = rollout.layout(known.get(rollout.name))
        except MisplacedError as error:
            raise MisplacedError(str(error), index, *error.location) from error
        if rollout.ranks is not None and not (layout and layout.rank):
            raise MisplacedError("means nothing without the pattern of a rank", index, "ranks")
    return rollouts


Rollouts = Annotated[tuple[RolloutConfig, ...], AfterValidator(_check)]
"""The rollouts of a run, as the field after its framework and its path."""


def merged(
    layouts: Sequence[RolloutLayout], rollouts: Sequence[RolloutConfig]
) -> tuple[tuple[str, RolloutLayout | None, RolloutConfig | None], ...]:
    """Those of a framework, and what the configuration makes of them and adds, by name."""
    given = {rollout.name: rollout for rollout in rollouts}
    known = {layout.name: layout for layout in layouts}
    found = []
    for name in dict.fromkeys((*known, *given)):
        config = given.get(name)
        layout = known.get(name)
        found.append((name, layout if config is None else config.layout(layout), config))
    return tuple(found)
