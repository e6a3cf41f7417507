"""Specification of a log to follow: the run's configuration merged with its framework."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.frameworks.base import LinePattern
from trainwarden_exporter.logs.config import MAX_LINE_BYTES


class LogBegin(NamedTuple):
    """Where in a log, and when (Unix seconds), its run began."""

    offset: int
    timestamp: float


@dataclass(frozen=True, slots=True)
class LogSpec:
    """One log and how it is followed."""

    run: str
    name: str
    path: Path
    files: tuple[str, ...]
    """Templates of its files."""
    patterns: tuple[LinePattern, ...] = ()
    role: str = ""
    writers: tuple[str, ...] = ()
    """The workers that may write it. While none of `files` exists, their output is read."""
    worker: str = ""
    """The worker that writes it; empty if unknown."""
    instance_templates: tuple[str, ...] = ()
    """Templates that, with those of the files, select the instance of the run."""
    variables: tuple[tuple[str, str], ...] = ()
    deduplication_group: str = ""
    by_file: bool = False
    """Whether copies of its lines are in other files of the same template."""
    silence_limit: float | None = None
    longest_line: int = MAX_LINE_BYTES
    begin: LogBegin | None = None
    """Known of a run that announced itself."""
    account: int | None = None
    """The account (uid) that named `path`, if no more than that one may read is read there."""
