"""Observations of a run's progress, from any source. All times are Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainwarden_exporter.frameworks.base import Phase


@dataclass(frozen=True, slots=True)
class StepReported:
    """A source reports the number of completed steps."""

    source: str
    """Label `source`: kind and name, as `log/trainer/step`, `checkpoint/default`."""
    step: int
    timestamp: float
    """Time at which the step was reached; the time of reading, if not `dated`."""
    dated: bool = True
    is_live: bool = True
    """Whether the source reports steps as they happen: a log, a table, a heartbeat. False for a
    record of a possibly earlier step: a checkpoint, a state file, a line about a save."""
    total: int | None = None
    """Total steps."""
    seconds: float | None = None
    """Duration of the step, if the source reports it."""
    total_of: Literal["run", "bar", "epoch", "line", "other"] = "run"
    """What `total` counts; see `LinePattern`."""
    form: str = ""
    """The form of the line, of a pattern that text may match by chance."""
    epoch: int | None = None
    """The epoch in the same line."""
    missed: bool = False
    """Whether its line was written between two exporters, so that it is none that is read again."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """The run advances by an unreported step."""

    timestamp: float
    dated: bool = True
    seconds: float | None = None
    """Duration of the step, if reported."""


@dataclass(frozen=True, slots=True)
class EpochReported:
    """The run reports the number of its epoch, which shows no progress alone."""

    epoch: int
    timestamp: float
    count: int | None = None
    """How many epochs it makes, if reported."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Something else than steps counts on: no measure of the pace, but the run does not hang."""

    timestamp: float


@dataclass(frozen=True, slots=True)
class TotalAnnounced:
    """The run announces its total steps."""

    total: int
    timestamp: float


@dataclass(frozen=True, slots=True)
class TrainerStarted:
    timestamp: float
    step: int | None = None
    """The step from which it continues, if reported."""
    dated: bool = True
    """As for a step."""
    witnessed: bool = True
    """Whether the run was observed at that time; if not, it may have advanced since."""
    learned_at: float | None = None
    """Time of the observation, if later than the start."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """One of several trainers restarted: not a start of the run, but an external interruption."""

    timestamp: float


@dataclass(frozen=True, slots=True)
class PhaseBegan:
    phase: Phase
    timestamp: float


@dataclass(frozen=True, slots=True)
class PhaseEnded:
    phase: Phase
    timestamp: float


@dataclass(frozen=True, slots=True)
class RunFinished:
    timestamp: float


@dataclass(frozen=True, slots=True)
class RecordsFound:
    """Complete checkpoints lie on disk."""

    records: tuple[tuple[int, float], ...]
    """Steps and times, both ascending."""
    interval: int | None
    """Steps between two saves, as configured in the run."""
    timestamp: float


ResumePoints = tuple[tuple[tuple[int, float], ...], ...]
"""Steps and times of checkpoints, of each kind."""


@dataclass(frozen=True, slots=True)
class ResumePointsFound:
    """Checkpoints from which a resume is sound."""

    points: ResumePoints
    timestamp: float


ProgressEvent = (
    StepReported
    | Advanced
    | EpochReported
    | Moved
    | TotalAnnounced
    | TrainerStarted
    | Interrupted
    | PhaseBegan
    | PhaseEnded
    | RunFinished
    | RecordsFound
    | ResumePointsFound
)
