"""Remembers what the program has seen since its start and the journal does not keep."""

from __future__ import annotations

from dataclasses import replace

from trainwarden_remediator.policy.context import PolicyState
from trainwarden_remediator.policy.full_disk import seen_without_room
from trainwarden_remediator.runtime.clock import Clock

WATCHDOG_SECONDS = 180.0
"""Seconds without the watchdog alert, which arrives each minute, after which alerts are missing."""


class SeenSinceStart:
    """Adds to each state what earlier ones have shown."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_at = clock.now()
        self._without_room: dict[str, float] = {}
        self._watched_since: float | None = None

    def add_to(self, state: PolicyState) -> PolicyState:
        now = self._clock.now()
        self._without_room |= seen_without_room(state, now)
        if state.watchdog_at <= self._started_at or now - state.watchdog_at >= WATCHDOG_SECONDS:
            self._watched_since = None
        elif self._watched_since is None:
            self._watched_since = state.watchdog_at
        return replace(
            state,
            without_room=dict(self._without_room),
            started_at=None if self._watched_since is None else self._started_at,
        )
