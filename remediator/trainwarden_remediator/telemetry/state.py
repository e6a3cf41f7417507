"""The state of the program that its metrics and its status page show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.notify.outbox import QueueState


@dataclass(frozen=True, slots=True)
class BreakerFigures:
    """The state of the circuit breaker. Times are Unix seconds."""

    breaker_open: bool
    breaker_actions: int
    breaker_limit: int
    blocked_since: Mapping[str, float]
    """By current reason."""


@dataclass(frozen=True, slots=True)
class JournalSummary:
    """The part of the state that is read from the journal."""

    counters: Mapping[str, Mapping[tuple[str, ...], float]]
    timestamps: Mapping[str, float]
    given_up: tuple[WorkerKey, ...]
    open_incidents: int
    given_up_before: tuple[WorkerKey, ...] = ()
    """Those whose alert has resolved since: if it fires again soon, it is the same incident."""
    oldest_action: float | None = None
    """Unix seconds; None without one."""
    breaker: BreakerFigures | None = None
    queue_states: Mapping[str, QueueState | None] = field(default_factory=dict)
    """The pending notifications of each receiver."""


@dataclass(frozen=True, slots=True)
class RemediatorState:
    """The state of the program. `journal` is None if the journal cannot be read."""

    mode: str
    paused: bool
    reload_successful: bool
    reload_timestamp: float
    web_config_loaded: bool | None
    """None without a web config file."""
    webhooks: Mapping[int, int]
    journal: JournalSummary | None
    config_file: Path = Path("remediator.yml")
    workers_hash: int | None = None
    """The hash of the workers in exporter.yml."""
    journal_writable: bool = True
    """Whether the last write to the journal succeeded."""
    last_cycle_at: float | None = None
    """Unix seconds; None before the first complete cycle."""
    aborted_cycles: int = 0
    """Decision cycles aborted because of memory shortage."""
    pulled_at: float | None = None
    """When Alertmanager was last polled successfully (Unix seconds); None without pull mode."""
    holds: Sequence[Hold] = ()
    """The holds in force."""
    alerts_stale: bool = False
    """Whether the watchdog alert has stopped arriving."""
    failsafe_active: bool = False
    """Whether the failsafe's alert fires."""
