"""Engine-neutral server statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Liveness(StrEnum):
    """Result of the liveness probe: whether the server answers and says that it serves."""

    SERVING = "serving"
    LOADING = "loading"
    """The server reports that it is loading."""
    NOT_READY = "not_ready"
    """The server reports that it is not ready, either not yet or no longer."""
    DEAD = "dead"
    """The server reports that its engine has died."""
    UNAUTHORIZED = "unauthorized"
    BAD = "bad"
    """The server answers with an error status."""
    REFUSED = "refused"
    SILENT = "silent"
    UNREACHABLE = "unreachable"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class ActivityCounter:
    """Activity of one engine or rank: a number that changes with every unit of work."""

    value: float
    should_change: bool
    """Whether it should change: requests are in progress, or it always changes."""
    always_changes: bool = False
    """Whether it changes with every iteration of the engine's loop, even without work."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Statistics of a server, normalised over engines and versions; None means unknown.

    Counters are sums over engines and ranks. `activity` is by rank; the empty rank stands for the
    whole server.
    """

    activity: Mapping[str, ActivityCounter] = field(default_factory=dict)
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    """KV cache usage of the fullest engine, 0 to 1."""
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
    """Whether the server reports, without a reason, that it accepts no requests."""
    paused: bool | None = None
    sleeping: bool | None = None
    updating: bool | None = None
    loop_alive: bool | None = None
    """Whether the engine's own loop answered, as opposed to the API in front of it. True only
    if a running loop proves that missing results are withheld."""


class Completion(StrEnum):
    """Result of a one-token completion."""

    DONE = "done"
    FAILED = "failed"
    PAUSED = "paused"
    """The server reports that it is paused."""
    IMPOSSIBLE = "impossible"
    """The request is not possible: missing key, model or endpoint."""
