"""What a server is judged by, what is remembered of it, and what it is found to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trainwarden_exporter.inference.reading import Completion, Life, Reading


class Reason(StrEnum):
    """How a server is, in a word."""

    OK = "ok"
    REFUSED = "refused"
    """Nobody listens, though somebody should."""
    UNREACHABLE = "unreachable"
    """The name, the route or TLS is at fault."""
    TIMEOUT = "timeout"
    """It is connected to, and says nothing."""
    STATUS = "status"
    """It answers with an error, or with what is no HTTP."""
    UNAUTHORIZED = "unauthorized"
    """It answers, but not us."""
    ENGINE_DEAD = "engine_dead"
    """It says that its engine has died."""
    HUNG = "hung"
    """It is there, and gets nothing done."""
    STARTING = "starting"
    PAUSED = "paused"
    SLEEPING = "sleeping"
    UPDATING_WEIGHTS = "updating_weights"


UP = frozenset(
    {
        Reason.OK,
        Reason.PAUSED,
        Reason.SLEEPING,
        Reason.UPDATING_WEIGHTS,
        # That is for a person to put right; no server is down.
        Reason.UNAUTHORIZED,
    }
)
"""The reasons of a server that serves, or does not because it was told so."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How patient to be with one server; in seconds and in rounds."""

    failures: int = 3
    start_grace: float = 600.0
    pause_limit: float = 600.0
    stall: float = 15.0
    """How long work may lie without any being done before a completion is asked for."""
    stall_limit: float = 300.0
    """How long it may before that is proof enough; the engines' own watchdogs wait as long."""
    deep: bool = True
    deep_interval: float = 20.0
    deep_failures: int = 2
    idle_after: float = 60.0


@dataclass(frozen=True, slots=True)
class ProcessFact:
    """The server's process: its start (unix seconds) and its age. Without a start there is none."""

    started: float | None = None
    age: float = 0.0


@dataclass(frozen=True, slots=True)
class Deep:
    """What came of a completion that was ordered of the engine or rank `rank`."""

    completion: Completion
    rank: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one round saw."""

    life: Life
    reading: Reading = field(default_factory=Reading)
    process: ProcessFact | None = None
    """None where it is not known which process it is."""
    deep: Deep | None = None
    deep_goes_on: bool = False
    """Whether a completion is under way."""
    told_update: float | None = None
    """Seconds for which the run's log has told of a weight update that goes on."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The last value of a beat, and since when it has owed another one."""

    value: float
    since: float


@dataclass(frozen=True, slots=True)
class State:
    """What is remembered of a server from one round to the next. Times are of a monotonic clock."""

    reason: Reason | None = None
    process: float | None = None
    """Start of the process that all the rest is about."""
    first: float | None = None
    """When it was first looked at."""
    refused: float | None = None
    """When it last refused a connection."""
    served: bool = False
    failures: int = 0
    """Failed rounds in a row."""
    silences: tuple[bool, ...] = ()
    """Which of the last rounds ended in silence."""
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """By rank, as the beats."""
    lost: float | None = None
    """Since when the engine's loop has not answered."""
    proof: float | None = None
    """When it was last proven to live."""
    worked: float | None = None
    """When it was last seen to have got something done."""
    held: bool = False
    """Whether it refused a completion because it is paused."""
    deep_failures: int = 0
    """Completions that failed in a row."""
    deep_at: float | None = None
    """When a completion was last ordered."""
    rest: float | None = None
    """Before when none is to be ordered."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be remembered, and whether a completion is to be asked for.

    `deep` is the engine or rank to ask for one, the empty rank for any; None for no completion.
    """

    state: State
    deep: str | None = None

    @property
    def reason(self) -> Reason | None:
        """None as long as nothing is known."""
        return self.state.reason

    @property
    def up(self) -> bool | None:
        return None if self.reason is None else self.reason in UP
