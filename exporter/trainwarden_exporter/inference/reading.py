"""What a server says of itself, in words that are the same for all engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Life(StrEnum):
    """What the first question of a round found: whether anybody is there, and says to serve."""

    SERVING = "serving"
    LOADING = "loading"
    """It says that it is not ready yet."""
    NOT_READY = "not_ready"
    """It says that it is not ready, and that may be yet or no longer."""
    DEAD = "dead"
    """It says that its engine has died."""
    UNAUTHORIZED = "unauthorized"
    BAD = "bad"
    """It answers with a status that is no good."""
    REFUSED = "refused"
    SILENT = "silent"
    UNREACHABLE = "unreachable"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Beat:
    """The heart of one engine or rank: a number that changes whenever something gets done."""

    value: float
    owed: bool
    """Whether it ought to change: there are requests in flight, or it changes in any case."""
    ticks: bool = False
    """Whether it changes in any case while the engine's loop turns, work or not."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of a server, normalised over engines and versions; None is not known.

    Counters are sums over engines and ranks. `beats` are by rank; the empty rank stands for the
    server as a whole.
    """

    beats: Mapping[str, Beat] = field(default_factory=dict)
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    """Share of the KV cache in use, from 0 to 1, of the fullest engine."""
    generated_tokens: float | None = None
    prompt_tokens: float | None = None
    preemptions: float | None = None
    errors: float | None = None
    aborts: float | None = None
    rejections: float | None = None
    models: tuple[str, ...] | None = None
    weight_version: str | None = None
    backends: float | None = None
    """Servers behind a router."""
    healthy_backends: float | None = None
    unready: bool | None = None
    """Whether it says that it takes no requests now, without saying why."""
    paused: bool | None = None
    asleep: bool | None = None
    updating: bool | None = None
    turning: bool | None = None
    """Whether the engine's own loop answered, as opposed to the API in front of it. True is said
    only where a loop that turns proves that what does not come is being held back."""


class Completion(StrEnum):
    """What came of asking for one token."""

    DONE = "done"
    FAILED = "failed"
    PAUSED = "paused"
    """It says that it is paused."""
    IMPOSSIBLE = "impossible"
    """It cannot be asked in this way: no key, no such model, no such endpoint."""
