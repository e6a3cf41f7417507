"""Configuration of a run's checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from trainwarden_exporter.config_file.loader import LocatedError, Section
from trainwarden_exporter.config_file.types import Name, Seconds
from trainwarden_exporter.frameworks.base import CheckpointLayout, RecoveryLayout
from trainwarden_exporter.step_dirs.config import (
    CompleteConfig,
    NamePattern,
    StepPattern,
    Template,
    check_folders,
    framework_of,
)


class RecoveryConfig(Section):
    """The record that a run resumes from, stored beside the checkpoints."""

    file: Template
    """The file, relative to the run's path."""

    step: StepPattern
    """Regular expression with the group `step`, searched in the content of the file."""

    step_offset: int = 0
    """Number added to the step to get completed steps, counted from one."""

    newer: Template | None = None
    """File of a recovery checkpoint that is overwritten in place: the record is valid if it is
    at least as new as everything beside that file."""

    written_last: Template | None = None
    """The file of the record that is written last, if not `file`."""

    def layout(self) -> RecoveryLayout:
        """Returns the equivalent layout."""
        given = self.model_dump(exclude_none=True)
        return RecoveryLayout(**given)


class CheckpointConfig(Section):
    name: Name
    """Label `checkpoint`. A name of the framework's own checkpoints overrides their settings; a
    new name adds checkpoints and requires `folder`, `entry` and `complete`."""

    folder: Template | None = None
    """Folder with one checkpoint per entry, relative to the run's path. Names in braces and
    globs are allowed."""

    entry: NamePattern | None = None
    """Regular expression for the full name of an entry, with the group `step`."""

    complete: CompleteConfig | None = None
    """How a complete checkpoint is recognised; mere existence does not prove completeness."""

    partial: NamePattern | None = None
    """Regular expression for the names of entries that are still being written under a
    temporary name.
    """

    step_offset: int | None = None
    """Number added to the number in a name to get completed steps, counted from one."""

    interval: Annotated[Seconds, Field(gt=0)] | None = None
    """Expected time between checkpoints; default: the observed median."""

    recovery: RecoveryConfig | None = None
    """The record that the run resumes from."""

    @property
    def templates(self) -> tuple[tuple[str, str], ...]:
        found = [("folder", self.folder)]
        if (recovery := self.recovery) is not None:
            found += [
                ("recovery.file", recovery.file),
                ("recovery.newer", recovery.newer),
                ("recovery.written_last", recovery.written_last),
            ]
        return tuple((key, template) for key, template in found if template is not None)

    def layout(self, base: CheckpointLayout | None) -> CheckpointLayout:
        """Returns `base` with these settings applied. Raises LocatedError for a missing setting."""
        if base is None:
            if self.folder is None or self.entry is None or self.complete is None:
                names = ("folder", "entry", "complete")
                missing = next(name for name in names if getattr(self, name) is None)
                raise LocatedError(
                    "required: the framework has no checkpoints of this name", missing
                )
            rule = self.complete.rule()
            base = CheckpointLayout(
                self.name, self.folder, self.entry, rule, resumes_incomplete=None
            )
        return replace(
            base,
            folder=self.folder or base.folder,
            entry=self.entry or base.entry,
            completeness=base.completeness if self.complete is None else self.complete.rule(),
            partial=self.partial or base.partial,
            step_offset=base.step_offset if self.step_offset is None else self.step_offset,
            recovery=base.recovery if self.recovery is None else self.recovery.layout(),
        )


class AnnouncedCheckpoint(CheckpointConfig):
    """The checkpoints in a folder that another account announced; no section of the file."""

    account: int
    """The account (uid); no more than it may read is read there."""


def _check(
    checkpoints: tuple[CheckpointConfig, ...], info: ValidationInfo
) -> tuple[CheckpointConfig, ...]:
    if (framework := framework_of(info)) is None:
        return checkpoints
    known = {layout.name: layout for layout in framework.checkpoints}
    check_folders(checkpoints, info, tuple(known))
    for index, checkpoint in enumerate(checkpoints):
        try:
            checkpoint.layout(known.get(checkpoint.name))
        except LocatedError as error:
            raise LocatedError(str(error), index, *error.location) from error
    return checkpoints


Checkpoints = Annotated[tuple[CheckpointConfig, ...], AfterValidator(_check)]
"""The checkpoints of a run; validated after its framework and its path."""


def merged_checkpoints(
    layouts: Sequence[CheckpointLayout], checkpoints: Sequence[CheckpointConfig]
) -> tuple[CheckpointLayout, ...]:
    """Merges the checkpoints of a framework with the configured ones."""
    given = {checkpoint.name: checkpoint for checkpoint in checkpoints}
    own = [
        given.pop(layout.name).layout(layout) if layout.name in given else layout
        for layout in layouts
    ]
    return (*own, *(checkpoint.layout(None) for checkpoint in given.values()))
