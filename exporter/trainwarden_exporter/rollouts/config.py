"""Configuration of a run's rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from trainwarden_exporter.config_file.loader import LocatedError, Section
from trainwarden_exporter.config_file.types import Name
from trainwarden_exporter.frameworks.base import RolloutLayout
from trainwarden_exporter.step_dirs.config import (
    CompleteConfig,
    NamePattern,
    RankPattern,
    Template,
    check_folders,
    framework_of,
)


class RolloutConfig(Section):
    renamed_keys: ClassVar[Mapping[str, str]] = {"interval": ""}

    name: Name
    """Label `rollout`. A name of the framework's own rollouts overrides their settings; a new
    name adds rollouts. Without a folder, the limits apply to rollouts that appear only in the
    log."""

    folder: Template | None = None
    """Folder with one batch, or one set of weights, per entry, relative to the run's path.
    Names in braces and globs are allowed."""

    entry: NamePattern | None = None
    """Regular expression for the full name of an entry, with the group `step`."""

    complete: CompleteConfig | None = None
    """How a complete entry is recognised, apart from ranks."""

    rank: RankPattern | None = None
    """Regular expression, with the group `rank`, for the full path of a file in an entry that
    is the part of one rank."""

    carries: Literal["batches", "weights"] | None = None
    """`batches` flow to the trainer, `weights` from it; default: batches."""

    step_offset: int | None = None
    """Number added to the number in a name to get the trainer's step, counted from one, that
    consumes the batch or produced the weights."""

    ranks: Annotated[int, Field(gt=0)] | None = None
    """Ranks of a complete entry; default: learned from earlier entries."""

    lag_limit: Annotated[int, Field(ge=0)] | None = None
    """Maximum number of steps that batches may be behind the next required one, or weights
    behind the trainer.
    """

    staleness_limit: Annotated[int, Field(ge=0)] | None = None
    """Maximum number of steps by which the policy of a batch may be older than the trainer's."""

    @property
    def templates(self) -> tuple[tuple[str, str], ...]:
        return () if self.folder is None else (("folder", self.folder),)

    def layout(self, base: RolloutLayout | None) -> RolloutLayout | None:
        """Returns `base` with these settings applied; None for rollouts without files.

        Raises LocatedError for a missing setting.
        """
        if base is None:
            if self.folder is None:
                self._refuse("entry", "complete", "rank", reason="requires a folder")
                return None
            if self.entry is None or self.complete is None:
                missing = "entry" if self.entry is None else "complete"
                raise LocatedError("required: the framework has no rollouts of this name", missing)
            base = RolloutLayout(self.name, self.folder, self.entry, self.complete.rule())
        return replace(
            base,
            folder=self.folder or base.folder,
            entry=self.entry or base.entry,
            completeness=base.completeness if self.complete is None else self.complete.rule(),
            rank=self.rank or base.rank,
            carries=self.carries or base.carries,
            step_offset=base.step_offset if self.step_offset is None else self.step_offset,
        )

    def _refuse(self, *names: str, reason: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise LocatedError(reason, name)


def _check(rollouts: tuple[RolloutConfig, ...], info: ValidationInfo) -> tuple[RolloutConfig, ...]:
    if (framework := framework_of(info)) is None:
        return rollouts
    known = {layout.name: layout for layout in framework.rollouts}
    check_folders(rollouts, info, tuple(known))
    for index, rollout in enumerate(rollouts):
        try:
            layout = rollout.layout(known.get(rollout.name))
        except LocatedError as error:
            raise LocatedError(str(error), index, *error.location) from error
        if rollout.ranks is not None and not (layout and layout.rank):
            raise LocatedError("requires the rank pattern", index, "ranks")
    return rollouts


Rollouts = Annotated[tuple[RolloutConfig, ...], AfterValidator(_check)]
"""The rollouts of a run; validated after its framework and its path."""


def merged_rollouts(
    layouts: Sequence[RolloutLayout], rollouts: Sequence[RolloutConfig]
) -> tuple[tuple[str, RolloutLayout | None, RolloutConfig | None], ...]:
    """Merges the rollouts of a framework with the configured ones, by name."""
    given = {rollout.name: rollout for rollout in rollouts}
    known = {layout.name: layout for layout in layouts}
    found = []
    for name in dict.fromkeys((*known, *given)):
        config = given.get(name)
        layout = known.get(name)
        found.append((name, layout if config is None else config.layout(layout), config))
    return tuple(found)
