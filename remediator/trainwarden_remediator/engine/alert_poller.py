"""Polls Alertmanager's API for the alerts of this host, instead of receiving webhooks.

Polled alerts are journaled in the same way as delivered ones. Source: Alertmanager's API v2
(`api/v2/openapi.yaml`), unchanged since 0.25.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainwarden_remediator.alertmanager.api import ListedAlert, parse_listed_alerts
from trainwarden_remediator.alertmanager.webhook_payload import WATCHDOG, Alert
from trainwarden_remediator.config.endpoints import PullSettings
from trainwarden_remediator.exceptions import JournalError, ObservationError
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.observation.active_alerts import Fetch
from trainwarden_remediator.observation.snapshot import FAILSAFE_FINGERPRINT
from trainwarden_remediator.runtime.clock import Clock, ConditionTimer

log = logging.getLogger(__name__)

REPEAT_SECONDS = 60.0
"""Seconds between two records of an alert that keeps firing, as the shipped routes repeat it."""

MAX_OBSERVATION_SECONDS = 30.0
"""Seconds for which one response counts at most."""

DISABLED_CHECK_SECONDS = 5.0
"""Seconds between two checks whether polling has been enabled."""

REMEDIATION = 'remediation!=""'
HEARTBEAT = f'alertname="{WATCHDOG}"'


@dataclass(slots=True)
class _TrackedAlert:
    """An alert that Alertmanager has listed. Times are those of a monotonic clock."""

    alert: Alert
    recorded_at: float | None = None
    gone: ConditionTimer = field(
        default_factory=lambda: ConditionTimer(max_gap=MAX_OBSERVATION_SECONDS)
    )


class AlertPoller:
    """Polls periodically, and journals alerts that are new, keep firing, or have resolved.

    A response without an alert does not show that the alert has resolved: Alertmanager may have
    just started, or Prometheus may be down. An alert counts as resolved only if it is absent for
    `resolve_after` while the watchdog alert keeps arriving.
    """

    def __init__(
        self,
        journal: Journal,
        settings: PullSettings | None,
        fetch: Fetch,
        *,
        clock: Clock,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._wake = wake
        self._tracked: dict[tuple[str, float], _TrackedAlert] | None = None
        self._last_heartbeat = 0.0
        self._last_heartbeat_at: float | None = None
        self._failure = ""
        self.last_answer_at: float | None = None
        """When Alertmanager last responded, in Unix seconds."""
        self.reconfigure(settings, fetch)

    def reconfigure(self, settings: PullSettings | None, fetch: Fetch) -> None:
        """Uses other settings from the next poll on."""
        self._settings = settings
        self._fetch = fetch

    async def run(self) -> None:
        while True:
            settings = self._settings
            if settings is not None:
                await self._poll(settings)
            pause = DISABLED_CHECK_SECONDS if settings is None else settings.interval
            await self._clock.sleep(pause)

    async def _poll(self, settings: PullSettings) -> None:
        try:
            if self._tracked is None:
                self._tracked = await asyncio.to_thread(self._load_tracked)
            listed = parse_listed_alerts(await self._fetch([*settings.match, REMEDIATION]))
            heartbeats = parse_listed_alerts(await self._fetch([HEARTBEAT]))
            own = [one for one in listed if _is_own(one, settings)]
            await self._record(settings, self._tracked, own, heartbeats)
        except (ObservationError, JournalError, MemoryError) as error:
            failure = str(error) or "out of memory"
            if failure != self._failure:
                log.error("polling for alerts failed", extra={"error": failure})
            self._failure = failure
            return
        if self._failure:
            log.info("polling for alerts works again")
        self._failure, self.last_answer_at = "", self._clock.now()

    def _load_tracked(self) -> dict[tuple[str, float], _TrackedAlert]:
        """Returns the alerts of open incidents, which may have resolved before this start."""
        return {
            (one.fingerprint, one.starts_at): _TrackedAlert(
                Alert(one.fingerprint, one.starts_at, firing=True, labels=one.labels)
            )
            for one in self._journal.open_incidents()
            if not one.resolved and one.fingerprint != FAILSAFE_FINGERPRINT
        }

    async def _record(
        self,
        settings: PullSettings,
        known: dict[tuple[str, float], _TrackedAlert],
        own: Sequence[ListedAlert],
        heartbeats: Sequence[ListedAlert],
    ) -> None:
        now = self._clock.monotonic()
        heartbeat = max((one.updated_at for one in heartbeats), default=0.0)
        # Alertmanager lists the watchdog for minutes after Prometheus died: only an update counts.
        heartbeat_is_new = heartbeat > self._last_heartbeat
        heartbeat_at = now if heartbeat_is_new else self._last_heartbeat_at
        pipeline_alive = (
            bool(heartbeats)
            and heartbeat_at is not None
            and now - heartbeat_at < settings.resolve_after
        )
        present = {(one.alert.fingerprint, one.alert.starts_at): one for one in own}
        resolved = _find_resolved(
            known, present, pipeline_alive=pipeline_alive, now=now, settings=settings
        )
        firing = [
            one.alert for key, one in present.items() if one.active and _is_due(known.get(key), now)
        ]
        if firing or resolved or heartbeat_is_new:
            ended = [replace(known[key].alert, firing=False) for key in resolved]
            await asyncio.to_thread(
                self._journal.record_alerts, [*ended, *firing], heartbeat=heartbeat_is_new
            )
        for key in resolved:
            del known[key]
        for alert in firing:
            key = (alert.fingerprint, alert.starts_at)
            known.setdefault(key, _TrackedAlert(alert)).recorded_at = now
        self._last_heartbeat = max(heartbeat, self._last_heartbeat)
        self._last_heartbeat_at = heartbeat_at
        if firing or resolved:
            self._wake()


def _is_own(one: ListedAlert, settings: PullSettings) -> bool:
    """Whether an alert matches the filters; a proxy may have dropped them from the request."""
    met = all(matcher.matches(one.alert.labels) for matcher in settings.matchers)
    return met and bool(one.alert.remediation)


def _is_due(known: _TrackedAlert | None, now: float) -> bool:
    return known is None or known.recorded_at is None or now - known.recorded_at >= REPEAT_SECONDS


def _find_resolved(
    known: Mapping[tuple[str, float], _TrackedAlert],
    present: Mapping[tuple[str, float], ListedAlert],
    *,
    pipeline_alive: bool,
    now: float,
    settings: PullSettings,
) -> list[tuple[str, float]]:
    """Returns the alerts that are long absent, or fire again under a later start time."""
    firing = {fingerprint for fingerprint, _ in present}
    found = []
    for key, one in known.items():
        gone = key not in present
        lasted = one.gone.update(gone and pipeline_alive, now)
        if gone and (key[0] in firing or lasted >= settings.resolve_after):
            found.append(key)
    return found
