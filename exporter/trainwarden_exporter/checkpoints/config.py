"""What exporter.yml says of a run's checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from trainwarden_exporter.entries.config import (
    CompleteConfig,
    EntryPattern,
    StepPattern,
    Template,
    check_places,
    layout_of,
)
from trainwarden_exporter.layouts.base import CheckpointLayout, RecoveryLayout
from trainwarden_exporter.units import Name, Seconds
from trainwarden_exporter.yamlfile import MisplacedError, Section


class RecoveryConfig(Section):
    """The record from which a run resumes, kept beside the checkpoints."""

    file: Template
    """The file, relative to the run's path."""

    step: StepPattern
    """Regular expression with the group `step`, searched in the file's text."""

    step_offset: int = 0
    """What to add to have the steps done, counted from one."""

    newer: Template | None = None
    """A file of a recovery checkpoint that is overwritten in place: the record is whole once it is
    at least as new as all that lies beside that file."""

    written_last: Template | None = None
    """The file of the record that is written last, where that is another one."""

    def layout(self) -> RecoveryLayout:
        """As a layout says it."""
        given = self.model_dump(exclude_none=True)
        return RecoveryLayout(**given)


class CheckpointConfig(Section):
    name: Name
    """Label `checkpoint`. Of one of the framework's own of this name, what is given here is
    replaced; another one is added, and needs `folder`, `entry` and `complete`."""

    folder: Template | None = None
    """The folder that holds one checkpoint an entry, relative to the run's path; it may hold names
    in braces and globs, as the framework's own do."""

    entry: EntryPattern | None = None
    """Regular expression for the whole name of an entry, with the group `step`."""

    complete: CompleteConfig | None = None
    """What proves a checkpoint complete; that it is there is no proof."""

    partial: EntryPattern | None = None
    """Regular expression for the names of entries that are written under another name first."""

    step_offset: int | None = None
    """What to add to the number in a name to have the steps done, counted from one."""

    interval: Annotated[Seconds, Field(gt=0)] | None = None
    """How often one should be saved; the median of those seen when not given."""

    recovery: RecoveryConfig | None = None
    """The record from which the run resumes."""

    @property
    def templates(self) -> tuple[tuple[str, str], ...]:
        """Those given, each with its key."""
        found = [("folder", self.folder)]
        if (recovery := self.recovery) is not None:
            found += [
                ("recovery.file", recovery.file),
                ("recovery.newer", recovery.newer),
                ("recovery.written_last", recovery.written_last),
            ]
        return tuple((key, template) for key, template in found if template is not None)

    def layout(self, base: CheckpointLayout | None) -> CheckpointLayout:
        """`base` with what is given here. Raises MisplacedError where something is missing."""
        if base is None:
            if self.folder is None or self.entry is None or self.complete is None:
                names = ("folder", "entry", "complete")
                missing = next(name for name in names if getattr(self, name) is None)
                raise MisplacedError("needed: the framework has none of this name", missing)
            base = CheckpointLayout(self.name, self.folder, self.entry, self.complete.proof())
        return replace(
            base,
            folder=self.folder or base.folder,
            entry=self.entry or base.entry,
            proof=base.proof if self.complete is None else self.complete.proof(),
            partial=self.partial or base.partial,
            step_offset=base.step_offset if self.step_offset is None else self.step_offset,
            recovery=base.recovery if self.recovery is None else self.recovery.layout(),
        )


def _check(
    checkpoints: tuple[CheckpointConfig, ...], info: ValidationInfo
) -> tuple[CheckpointConfig, ...]:
    if (run := layout_of(info)) is None:
        return checkpoints
    known = {layout.name: layout for layout in run.checkpoints}
    check_places(checkpoints, info, tuple(known))
    for index, checkpoint in enumerate(checkpoints):
        try:
            checkpoint.layout(known.get(checkpoint.name))
        except MisplacedError as error:
            raise MisplacedError(str(error), index, *error.location) from error
    return checkpoints


Checkpoints = Annotated[tuple[CheckpointConfig, ...], AfterValidator(_check)]
"""The checkpoints of a run, as the field after its framework and its path."""


def merged(
    layouts: Sequence[CheckpointLayout], checkpoints: Sequence[CheckpointConfig]
) -> tuple[CheckpointLayout, ...]:
    """Those of a framework, and what the configuration makes of them and adds."""
    given = {checkpoint.name: checkpoint for checkpoint in checkpoints}
    own = [
        given.pop(layout.name).layout(layout) if layout.name in given else layout
        for layout in layouts
    ]
    return (*own, *(checkpoint.layout(None) for checkpoint in given.values()))
