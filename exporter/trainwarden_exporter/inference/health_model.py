"""Health model of a server: limits, observations, state and reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trainwarden_exporter.inference.engine_stats import Completion, EngineStats, Liveness


class HealthReason(StrEnum):
    """Health reason of a server; value of the label `reason`."""

    OK = "ok"
    REFUSED = "refused"
    """Connection refused although a server is expected."""
    UNREACHABLE = "unreachable"
    """Name resolution, routing or TLS failed."""
    TIMEOUT = "timeout"
    """Connected, but without an answer."""
    STATUS = "status"
    """Answered with an error, or not with HTTP."""
    UNAUTHORIZED = "unauthorized"
    """Answered, but rejected our credentials."""
    ENGINE_DEAD = "engine_dead"
    """The server reports that its engine has died."""
    HUNG = "hung"
    """The server answers but does no work; or it does not answer, and its processes are stopped or
    use no CPU."""
    BUSY = "busy"
    """The server does not answer, and its processes work: it answers one request after the other,
    and this one takes long. Beyond its limit it is not up."""
    STARTING = "starting"
    PAUSED = "paused"
    SLEEPING = "sleeping"
    UPDATING_WEIGHTS = "updating_weights"


UP = frozenset(
    {
        HealthReason.OK,
        HealthReason.BUSY,
        HealthReason.PAUSED,
        HealthReason.SLEEPING,
        HealthReason.UPDATING_WEIGHTS,
        # An operator must fix these; the server is not down.
        HealthReason.UNAUTHORIZED,
    }
)
"""Reasons of a server that serves or is intentionally out of service."""


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """Limits of one server, in seconds and in rounds."""

    failures: int = 3
    start_grace: float = 600.0
    pause_limit: float = 600.0
    busy_limit: float = 3600.0
    """Time without an answer for which a server that works is up."""
    probes_completions: bool = True
    completion_interval: float = 20.0
    completion_failures: int = 2
    idle_after: float = 60.0


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """Start (Unix seconds) and age of the server's process. No start means no process."""

    started: float | None = None
    age: float = 0.0


@dataclass(frozen=True, slots=True)
class CompletionProbe:
    """Result of a completion requested from the engine or rank `rank`."""

    outcome: Completion
    rank: str = ""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Observations of one round."""

    liveness: Liveness
    stats: EngineStats = field(default_factory=EngineStats)
    process: ProcessInfo | None = None
    """None if the process is unknown."""
    completion: CompletionProbe | None = None
    completion_pending: bool = False
    """Whether a completion is in progress."""
    stopped: bool = False
    """Whether one of the server's processes is stopped (SIGSTOP)."""
    idle: bool = False
    """Whether the server's processes used no CPU during an unanswered probe."""
    at_work: bool = False
    """Whether they worked during it, and the server cannot answer while it works."""
    logged_update: float | None = None
    """Duration in seconds of a weight update in progress according to the run's log."""


@dataclass(frozen=True, slots=True)
class ActivityMark:
    """Last value of a counter, and since when a change is due."""

    value: float
    since: float


@dataclass(frozen=True, slots=True)
class HealthState:
    """State of a server between rounds. Times are monotonic."""

    reason: HealthReason | None = None
    process: float | None = None
    """Start of the process that the state belongs to."""
    first_probe_at: float | None = None
    """Time of the first probe."""
    refused_at: float | None = None
    """Time of the last refused connection."""
    has_served: bool = False
    failures: int = 0
    """Consecutive failed rounds."""
    idle_failures: int = 0
    """Consecutive unanswered rounds in which the server's processes used no CPU."""
    timeouts: tuple[bool, ...] = ()
    """For each recent round, whether it timed out while the server did not work."""
    silent_since: float | None = None
    """Time of the first of the consecutive unanswered rounds."""
    at_work_at: float | None = None
    """Time of the last of them in which the server worked."""
    overdue: bool = False
    """Whether it is busy beyond its limit."""
    activity_marks: Mapping[str, ActivityMark] = field(default_factory=dict)
    """By rank, like the counters."""
    loop_lost_at: float | None = None
    """Time since which the engine's loop does not answer."""
    proven_alive_at: float | None = None
    """Last proof that the server works."""
    last_progress_at: float | None = None
    """Last observed work."""
    completion_paused: bool = False
    """Whether it rejected a completion because it is paused."""
    completion_failures: int = 0
    """Consecutive failed completions."""
    completion_at: float | None = None
    """Time of the last requested completion."""
    no_completion_before: float | None = None
    """Time before which no completion is requested."""


@dataclass(frozen=True, slots=True)
class HealthAssessment:
    """The new state, and the engine or rank to request a completion from.

    The empty rank stands for any; None for no completion.
    """

    state: HealthState
    completion_rank: str | None = None

    @property
    def reason(self) -> HealthReason | None:
        """None while unknown."""
        return self.state.reason

    @property
    def up(self) -> bool | None:
        return None if self.reason is None else self.reason in UP and not self.state.overdue
