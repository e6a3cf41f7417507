"""Errors of Trainwarden.

TrainwardenError
├── NoData          there is nothing to observe here, and that is healthy
├── CollectError    a collector could not see what it is there to see
├── UsageError      a command names what does not exist
├── NoThreadError   a thread for calls that may block cannot be had
└── ConfigError     a file is wrong; carries every problem found, each with path and line
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class TrainwardenError(Exception):
    """Base of all errors that Trainwarden raises."""


class NoData(TrainwardenError):  # noqa: N818 - a state, not an error: the field's own name for it
    """Nothing to observe on this host; the collector is healthy and yields no samples."""


class CollectError(TrainwardenError):
    """A collector failed to observe its subject."""


class UsageError(TrainwardenError):
    """A command names a file, folder or run that does not exist, or may not be used."""


class NoThreadError(TrainwardenError, RuntimeError):
    """The thread `name` cannot be started: the host is out of threads or out of memory."""

    def __init__(self, name: str, error: RuntimeError | MemoryError) -> None:
        super().__init__(name, error)
        self.name = name
        self.error = error

    def __str__(self) -> str:
        return f'no thread "{self.name}": {str(self.error) or "no memory"}'


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in one file. `line` is 1-based, or None if the problem has no line."""

    path: Path
    line: int | None
    where: str
    message: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line is not None else str(self.path)
        return (
            f"{place}: {self.where}: {self.message}" if self.where else f"{place}: {self.message}"
        )


class ConfigError(TrainwardenError):
    """A configuration file is invalid. `problems` lists all of its problems."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)
