"""Configuration and layout of a run's progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainwarden_exporter.frameworks.base import LinePattern
from trainwarden_exporter.frameworks.error_lines import FATAL_LINES, FATAL_PREFIX
from trainwarden_exporter.progress.progress_files import ProgressFileSpec
from trainwarden_exporter.progress.stall_limits import StallLimits

TRAINER = "trainer"
"""Role of the log and of the worker that make steps."""


@dataclass(frozen=True, slots=True)
class ProgressSpec:
    """How to follow the progress of one run."""

    run: str
    framework: str = ""
    """Name as its authors spell it."""
    path: Path | None = None
    """Base folder of the run, as configured."""
    account: int | None = None
    """The account (uid) that named `path`, if no more than that one may read is read there."""
    limits: StallLimits = field(default_factory=StallLimits)
    total: int | None = None
    """Total steps, as configured."""
    lines: Mapping[tuple[str, str], LinePattern] = field(default_factory=dict)
    """Patterns by log and pattern name."""
    default_lines: frozenset[str] = frozenset()
    """Names of patterns whose absence means nothing."""
    files: tuple[ProgressFileSpec, ...] = ()
    trainers: tuple[str, ...] = ()
    """The workers that make the steps."""
    searchers: tuple[str, ...] = ()
    """Without a trainer, the workers that make the trials of a search, each for itself."""
    announces_evaluations: bool = False
    """Whether a line reports the start of an evaluation, so that its silence is no stall."""
    ettr_minimum: float = 0.7
    """Effective training time ratio under which an alert fires."""

    @property
    def has_step_source(self) -> bool:
        """Whether a line or a file can report steps, so that their absence has a meaning."""
        return bool(self.files) or any(
            _reports_progress(line)
            for line in self.lines.values()
            if line.name not in self.default_lines
        )


def _reports_progress(line: LinePattern) -> bool:
    if line.error:
        return False
    return bool(line.phase or line.ends or line.advances or "(?P<step>" in line.regex)


def is_fatal(line: LinePattern, role: str) -> bool:
    """Whether an error line in a log of `role` is the last of a trainer."""
    known = line.name in FATAL_LINES or line.name.startswith(FATAL_PREFIX)
    return known and role in ("", TRAINER)
