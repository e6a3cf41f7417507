"""What the parts of the engine share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trainwarden_exporter.runtime.blocking_thread import SerialThread
from trainwarden_remediator.actions import action_for
from trainwarden_remediator.actions.base import Action
from trainwarden_remediator.actions.descendants import DescendantTracker
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.config.targets import Budget
from trainwarden_remediator.engine.failsafe import Failsafe
from trainwarden_remediator.evidence.triggers import EvidenceTrigger
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.observation.snapshot import Observer
from trainwarden_remediator.runtime.clock import Clock

Evidence = Callable[[EvidenceTrigger, Setup], Awaitable[None]]
"""Records the state of the host; never raises, and returns within a time limit."""


@dataclass(slots=True, kw_only=True)
class EngineContext:
    """The configuration in force and the services of the engine.

    The control loop replaces `setup` and `observer` at a reload; no other part changes a field.
    """

    setup: Setup
    journal: Journal
    observer: Observer
    clock: Clock
    tracker: DescendantTracker
    action_for: Callable[[Budget, Setup, DescendantTracker], Action] = action_for
    thread_factory: Callable[[str], SerialThread] = SerialThread
    evidence: Evidence | None = None
    failsafe: Failsafe | None = None
    reread_exporter_file: Callable[[], Awaitable[str]] | None = None
    """Reads exporter.yml again if it has changed, and reconfigures the control loop then. Returns
    why it cannot be used, or ""."""

    @property
    def observer_with_fallback(self) -> Observer:
        """The observer that observes the host directly while the failsafe is active."""
        return self.observer if self.failsafe is None else self.failsafe
