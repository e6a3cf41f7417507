"""What can be wrong with a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DamageKind(StrEnum):
    """A kind of damage."""

    TRUNCATED = "truncated"
    """A file ends too early."""
    CORRUPT = "corrupt"
    """The content of a file contradicts its format or its checksum."""
    MISSING = "missing"
    """A file that another one names, or the file of a rank, is absent."""
    MISMATCH = "mismatch"
    """A file holds something else than its name or the index says."""
    NOT_FINITE = "not_finite"
    """Weights are NaN or infinite."""
    ZEROS = "zeros"
    """Weights are zero where the checkpoint before has values, or all of them are."""
    CHANGED = "changed"
    """A file is no longer what it was when it was proved."""
    UNREADABLE = "unreadable"
    """A file cannot be read, while others of the checkpoint can."""
    INTERRUPTED = "interrupted"
    """The temporary file of a save that did not end."""
    TRACKER = "tracker"
    """The tracker file names a checkpoint that does not exist."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One damage of a checkpoint."""

    kind: DamageKind
    file: str
    """Path relative to the checkpoint; empty for a checkpoint that is a single file."""
    detail: str

    def __str__(self) -> str:
        return f"{self.file}: {self.detail}" if self.file else self.detail
