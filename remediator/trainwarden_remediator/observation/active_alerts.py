"""Lists the active alerts of this host for the status pages, whether a playbook exists or not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlencode

import aiohttp

from trainwarden_remediator.alertmanager.api import parse_listed_alerts
from trainwarden_remediator.alertmanager.webhook_payload import WATCHDOG, Alert
from trainwarden_remediator.config.endpoints import PullSettings
from trainwarden_remediator.config.schema import AlertmanagerEndpoint
from trainwarden_remediator.credentials.outgoing import RequestCredentials
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.observation.snapshot import get
from trainwarden_remediator.runtime.clock import Clock

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 1.0
"""Seconds that Alertmanager may take; the exporter's page waits 2 s for the whole answer."""

MAX_AGE_SECONDS = 5.0
"""For how long a list, or a failure, is reused: pages must not burden Alertmanager."""

ActiveAlerts = Sequence[Alert] | str
"""The active alerts, or why they are not known."""


Fetch = Callable[[Sequence[str]], Awaitable[bytes]]
"""Returns the response of `/api/v2/alerts` to a list of filters. Raises ObservationError."""


def alert_fetcher(session: aiohttp.ClientSession, endpoint: AlertmanagerEndpoint) -> Fetch:
    """Returns a function that asks Alertmanager for the alerts that meet a list of filters."""
    credentials = RequestCredentials(endpoint)

    async def fetch(filters: Sequence[str]) -> bytes:
        query = urlencode([("filter", one) for one in filters])
        return await get(session, f"{endpoint.url}/api/v2/alerts?{query}", credentials)

    return fetch


def status_fetcher(
    session: aiohttp.ClientSession, endpoint: AlertmanagerEndpoint
) -> Callable[[], Awaitable[bytes]]:
    """Returns a function that asks Alertmanager for its status, with its configuration."""
    credentials = RequestCredentials(endpoint)

    async def fetch() -> bytes:
        return await get(session, f"{endpoint.url}/api/v2/status", credentials)

    return fetch


class ActiveAlertLister:
    """Asks Alertmanager when a page needs the list.

    With `alertmanager.pull` only alerts that meet its matchers count. Without it, all alerts of
    this Alertmanager count, because webhooks do not say which other alerts are of this host.
    """

    def __init__(self, settings: PullSettings | None, fetch: Fetch, *, clock: Clock) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self.reconfigure(settings, fetch)

    def reconfigure(self, settings: PullSettings | None, fetch: Fetch) -> None:
        """Uses other settings from the next list on."""
        self._settings = settings
        self._fetch = fetch
        self._last: ActiveAlerts = "not asked yet"
        self._asked_at: float | None = None

    async def list(self) -> ActiveAlerts:
        """Returns the alerts that are neither silenced nor inhibited, without the watchdog."""
        async with self._turn:
            now = self._clock.monotonic()
            if self._asked_at is None or now - self._asked_at >= MAX_AGE_SECONDS:
                self._last = await self._ask()
                self._asked_at = self._clock.monotonic()
            return self._last

    async def _ask(self) -> ActiveAlerts:
        settings = self._settings
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                body = await self._fetch([] if settings is None else settings.match)
            listed = await asyncio.to_thread(parse_listed_alerts, body)
        except TimeoutError:
            return f"Alertmanager did not respond within {TIMEOUT_SECONDS:g} s"
        except ObservationError as error:
            # The pages need no login: they name no address of the network.
            log.warning("active alerts not known", extra={"error": str(error)})
            return "Alertmanager does not answer"
        except MemoryError:
            return "out of memory"
        matchers = () if settings is None else settings.matchers
        return [
            one.alert
            for one in listed
            if one.active
            and one.alert.name != WATCHDOG
            and all(matcher.matches(one.alert.labels) for matcher in matchers)
        ]
