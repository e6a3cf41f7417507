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

    def add_to(self, state: PolicyState) -> PolicyState:
        now = self._clock.now()
        self._without_room |= seen_without_room(state, now)
        watched = (
            self._started_at < state.watchdog_at and now - state.watchdog_at < WATCHDOG_SECONDS
        )
        return replace(
            state,
            without_room=dict(self._without_room),
            started_at=self._started_at if watched else None,
        )
