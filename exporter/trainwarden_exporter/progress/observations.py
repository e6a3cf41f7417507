"""What can be seen of a run's progress, whoever saw it. All moments are Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden_exporter.layouts.base import Phase


@dataclass(frozen=True, slots=True)
class StepSeen:
    """A source says that so many steps are done."""

    source: str
    """Label `source`: the kind and the name, as `log/trainer/step`, `checkpoint/default`."""
    step: int
    timestamp: float
    """When the run came to this step; when that was read, where `dated` is False."""
    dated: bool = True
    tells: bool = True
    """Whether the source speaks of steps as they happen: a log, a table, a heartbeat. False for a
    record of a step that may lie back: a checkpoint, a state file, a line about a save."""
    total: int | None = None
    """Steps in all."""
    seconds: float | None = None
    """How long the step took, where the source says so."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """The run goes forward; it was not said to which step."""

    timestamp: float
    dated: bool = True
    seconds: float | None = None
    """How long the step took, where that was said."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The run is to make so many steps."""

    total: int
    timestamp: float


@dataclass(frozen=True, slots=True)
class Started:
    """The trainer started."""

    timestamp: float
    step: int | None = None
    """The step that it goes on from, where it says so."""
    dated: bool = True
    """As of a step."""
    witnessed: bool = True
    """Whether the run was watched then; if not, it may have come far since."""
    noticed: float | None = None
    """When it was learned, where that is not when it happened."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """One of several trainers started anew: no start of the run, but no doing of its own either."""

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
class Finished:
    """The run has done all that it was to do."""

    timestamp: float


Observation = (
    StepSeen | Advanced | Planned | Started | Interrupted | PhaseBegan | PhaseEnded | Finished
)
