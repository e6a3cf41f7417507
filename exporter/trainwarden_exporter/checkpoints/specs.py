"""Specs of a run's checkpoints, from its layout and its configuration."""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass

from trainwarden_exporter.frameworks.base import CheckpointLayout
from trainwarden_exporter.step_dirs.locations import RunLocation

SAVING_SECONDS = 60.0
"""Seconds after the last write for which a checkpoint counts as being saved."""


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """One kind of checkpoint of one run."""

    run: str
    location: RunLocation
    layout: CheckpointLayout
    interval: float | None = None
    """Configured interval in seconds."""
    is_copy: bool = False
    """Whether the run neither writes nor resumes from them: copies in a second place."""

    @property
    def named_folder(self) -> str:
        """The one folder that was named with its whole path; "" for a pattern."""
        folder = self.layout.folder
        plain = re.sub(r"\[([*?[])\]", r"\1", folder)  # as glob.escape writes it
        is_one = folder.startswith("/") and "{" not in folder and folder == glob.escape(plain)
        return plain if is_one else ""

    @property
    def labels(self) -> tuple[str, str]:
        return (self.run, self.layout.name)

    @property
    def title(self) -> str:
        """Name for logs."""
        return f"{'copies of ' if self.is_copy else ''}checkpoints {'/'.join(self.labels)}"
