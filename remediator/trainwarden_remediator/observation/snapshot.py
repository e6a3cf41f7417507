"""Observes Alertmanager and the exporter, before and after an action."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol, TypeVar

import aiohttp

from trainwarden_remediator.alertmanager.api import (
    AlertState,
    Silence,
    parse_alert_states,
    parse_silences,
)
from trainwarden_remediator.config.endpoints import Endpoint
from trainwarden_remediator.credentials.outgoing import RequestCredentials
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.observation.exporter_page import parse_exporter_page
from trainwarden_remediator.observation.listener_account import check_listener
from trainwarden_remediator.observation.model import ExporterState

T = TypeVar("T")

RESPONSE_TIMEOUT_SECONDS = 5
"""Seconds that the exporter or Alertmanager may take to respond."""

SCRAPE_TIMEOUT_HEADERS = {"X-Prometheus-Scrape-Timeout-Seconds": str(RESPONSE_TIMEOUT_SECONDS - 1)}
"""Makes the exporter respond in time, even if one of its collectors hangs."""

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
"""Bytes of the longest accepted response."""

FAILSAFE_FINGERPRINT = "brake"
"""Fingerprint of the failsafe's alert; Alertmanager's fingerprints have 16 hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class AlertmanagerState:
    """The alerts and silences of Alertmanager."""

    states: Mapping[str, AlertState]
    """The state of every alert, by fingerprint."""
    silences: tuple[Silence, ...] = ()
    """The silences in force."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One observation; a part that failed is None, and `unknown` has the errors."""

    alerts: AlertmanagerState | None
    exporter: ExporterState | None
    unknown: str = ""
    failsafe: Snapshot | None = None
    """The snapshot for decisions about the failsafe's alert, while that alert fires."""


class Observer(Protocol):
    """The source of observations; tests use a fake."""

    async def observe(self) -> ExporterState:
        """Returns the state that the exporter shows now. Raises ObservationError."""

    async def alerts(self) -> AlertmanagerState:
        """Returns the current state of Alertmanager. Raises ObservationError."""


async def take_snapshot(observer: Observer) -> Snapshot:
    """Returns a snapshot of Alertmanager and the exporter, queried concurrently."""
    async with asyncio.TaskGroup() as group:
        alerts = group.create_task(_result_or_error(observer.alerts()))
        exporter = group.create_task(_result_or_error(observer.observe()))
    (state, alerts_error), (page, exporter_error) = alerts.result(), exporter.result()
    unknown = "; ".join(filter(None, (alerts_error, exporter_error)))
    return Snapshot(alerts=state, exporter=page, unknown=unknown)


async def _result_or_error(question: Awaitable[T]) -> tuple[T | None, str]:
    try:
        return await question, ""
    except ObservationError as error:
        return None, str(error)


class HttpObserver:
    """Observes the exporter and Alertmanager over HTTP."""

    def __init__(
        self, session: aiohttp.ClientSession, exporter: Endpoint, alertmanager: Endpoint
    ) -> None:
        self._session = session
        self._exporter = RequestCredentials(exporter)
        self._alertmanager = RequestCredentials(alertmanager)
        self._metrics_url = f"{exporter.url}/metrics"
        # No label of an alert goes into the URL: all alerts are fetched, and selected here.
        filters = "active=true&silenced=true&inhibited=true"
        self._alerts_url = f"{alertmanager.url}/api/v2/alerts?{filters}"
        self._silences_url = f"{alertmanager.url}/api/v2/silences"

    async def observe(self) -> ExporterState:
        try:
            body = await get(self._session, self._metrics_url, self._exporter)
            return await asyncio.to_thread(parse_exporter_page, body)
        except MemoryError as error:
            raise ObservationError(f"{self._metrics_url}: out of memory") from error

    async def alerts(self) -> AlertmanagerState:
        try:
            listed = await get(self._session, self._alerts_url, self._alertmanager)
            silences = await get(self._session, self._silences_url, self._alertmanager)
            states = await asyncio.to_thread(parse_alert_states, listed)
            return AlertmanagerState(states, await asyncio.to_thread(parse_silences, silences))
        except MemoryError as error:
            raise ObservationError(f"{self._alerts_url}: out of memory") from error


async def get(
    session: aiohttp.ClientSession, url: str, credentials: RequestCredentials | None = None
) -> bytes:
    """Returns the body of a response with status 200.

    Raises ObservationError on any other status, an error, a timeout, a body that is too long, or if
    another account listens there.
    """
    user = None if credentials is None else credentials.user
    awaited = f"the disk of the credentials for {url}"
    try:
        async with asyncio.timeout(RESPONSE_TIMEOUT_SECONDS):
            options = {} if credentials is None else dict(await credentials.options())
            options["headers"] = {**SCRAPE_TIMEOUT_HEADERS, **options.get("headers", {})}
            awaited = url
            await asyncio.to_thread(check_listener, url, user)
            # A redirect would send the credentials elsewhere.
            async with session.get(url, allow_redirects=False, **options) as answer:
                if answer.status != HTTPStatus.OK:
                    raise ObservationError(f"{url} answered {answer.status}")
                body = await answer.content.read(MAX_RESPONSE_BYTES + 1)
                while len(body) <= MAX_RESPONSE_BYTES and (
                    more := await answer.content.read(MAX_RESPONSE_BYTES + 1 - len(body))
                ):
                    body += more
            await asyncio.to_thread(check_listener, url, user)  # it may have come since
    except TimeoutError as error:
        message = f"{awaited} did not respond within {RESPONSE_TIMEOUT_SECONDS} s"
        raise ObservationError(message) from error
    except aiohttp.ClientError as error:
        raise ObservationError(f"{url}: {error}") from error
    if len(body) > MAX_RESPONSE_BYTES:
        raise ObservationError(f"{url} answered with more than {MAX_RESPONSE_BYTES} bytes")
    return body
