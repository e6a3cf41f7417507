"""The remediator of a host, as its page shows it. It heals nothing: only rules are judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from verdicts.page import BASE, Page
from verdicts.shapes import RUN

HEARTBEAT_OF_THE_PIPELINE = 15.0
MESSAGES = 900.0
"""Seconds between two notifications,"""
DELIVERED = 75.0
"""and until it is delivered: after the third attempt."""


@dataclass
class Remediator:
    """The healer's own page. It heals nothing here: rules are judged by what they say alone."""

    up: bool = True
    hears: bool = True
    watchdog: float = BASE
    journal: bool = True
    config: bool = True
    blocked: float | None = None
    """Since when it has only refused."""
    breaker: bool = False
    gave_up: dict[str, bool] = field(default_factory=dict)
    hold: tuple[str, str] | None = None
    """The run and the worker on hold; both empty for everything."""
    unsent: float | None = None
    """The time since a notification cannot be delivered."""
    dropped: int = 0
    """Dropped notifications."""
    broken_off: int = 0
    """Turns for which there was no memory."""
    workers_hash: int = 7
    """Of the workers in exporter.yml as it has read them."""

    def put(self, page: Page, now: float) -> None:
        if self.hears:
            self.watchdog = now // HEARTBEAT_OF_THE_PIPELINE * HEARTBEAT_OF_THE_PIPELINE
        page.put("trainwarden_remediator_watchdog_timestamp_seconds", self.watchdog)
        page.put("trainwarden_remediator_journal_success", self.journal)
        page.put("trainwarden_remediator_config_last_reload_successful", self.config)
        hash_name = "trainwarden_remediator_exporter_config_workers_hash"
        page.put(hash_name, self.workers_hash)
        page.put("trainwarden_remediator_evaluations_aborted_total", self.broken_off)
        page.put("trainwarden_remediator_blocked_since_timestamp_seconds", self.blocked, "budget")
        page.put("trainwarden_remediator_breaker_open", self.breaker)
        for worker, given_up in self.gave_up.items():
            page.put("trainwarden_remediator_incident_abandoned", given_up, RUN, worker)
        page.put("trainwarden_remediator_paused", self.hold == ("", ""))
        if self.hold is not None:
            page.put("trainwarden_remediator_hold_info", 1, *self.hold)
        self._put_messages(page, now)

    def _put_messages(self, page: Page, now: float) -> None:
        """A healthy host sends a notification now and then, sometimes after some attempts."""
        since = self.unsent
        if since is None and now % MESSAGES < DELIVERED:
            since = now - now % MESSAGES
        name = "trainwarden_remediator_notifications"
        page.put(f"{name}_waiting", since is not None, "phone")
        page.put(f"{name}_total", self.dropped, "phone", "dropped")
        page.put("trainwarden_remediator_oldest_notification_timestamp_seconds", since, "phone")
