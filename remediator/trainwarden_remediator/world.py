"""Asks the world again just before an act, and after it: Alertmanager, and the exporter's eyes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol, TypeVar

import aiohttp

from trainwarden_remediator.alertmanager import (
    AlertState,
    Silence,
    parse_alerts,
    parse_silences,
)
from trainwarden_remediator.door import Door
from trainwarden_remediator.exceptions import UnknownError
from trainwarden_remediator.seeing import parse_sight
from trainwarden_remediator.sight import Sight

T = TypeVar("T")

ANSWER_SECONDS = 5
"""How long the exporter or Alertmanager may take to answer."""

HURRY = {"X-Prometheus-Scrape-Timeout-Seconds": str(ANSWER_SECONDS - 1)}
"""Makes the exporter answer in time with what it sees, also while one of its collectors hangs."""

ANSWER_BYTES = 64 * 1024 * 1024
"""The longest answer that is read."""

BRAKE = "brake"
"""The fingerprint of the local brake's own alert; Alertmanager's have 16 hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class Alerts:
    """What Alertmanager says."""

    states: Mapping[str, AlertState]
    """Every alert that it knows, by fingerprint."""
    silences: tuple[Silence, ...] = ()
    """Those in force."""


@dataclass(frozen=True, slots=True)
class World:
    """One look: what could not be learnt is None, and `unknown` says why."""

    alerts: Alerts | None
    sight: Sight | None
    unknown: str = ""
    brake: World | None = None
    """What the local brake's own alert is judged by, while there is one."""


class Eyes(Protocol):
    """Whoever can be asked; a test may answer in the world's place."""

    async def look(self) -> Sight:
        """What the exporter sees now. Raises UnknownError."""

    async def alerts(self) -> Alerts:
        """How every alert stands at Alertmanager now. Raises UnknownError."""


async def ask(eyes: Eyes) -> World:
    """Both answers, asked for at once."""
    async with asyncio.TaskGroup() as group:
        alerts = group.create_task(_answer(eyes.alerts()))
        sight = group.create_task(_answer(eyes.look()))
    errors = [error for _, error in (alerts.result(), sight.result()) if error]
    return World(alerts=alerts.result()[0], sight=sight.result()[0], unknown="; ".join(errors))


async def _answer(question: Awaitable[T]) -> tuple[T | None, str]:
    try:
        return await question, ""
    except UnknownError as error:
        return None, str(error)


class BoxEyes:
    """The real exporter and the real Alertmanager, over HTTP."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        exporter_url: str,
        alertmanager_url: str,
        exporter: Door | None = None,
        alertmanager: Door | None = None,
    ) -> None:
        self._session = session
        self._exporter = exporter
        self._alertmanager = alertmanager
        self._metrics_url = f"{exporter_url}/metrics"
        # Nothing of an alert goes into the URL: all alerts are asked for, and picked from here.
        self._alerts_url = (
            f"{alertmanager_url}/api/v2/alerts?active=true&silenced=true&inhibited=true"
        )
        self._silences_url = f"{alertmanager_url}/api/v2/silences"

    async def look(self) -> Sight:
        try:
            body = await get(self._session, self._metrics_url, self._exporter)
            return await asyncio.to_thread(parse_sight, body)
        except MemoryError as error:
            raise UnknownError(f"{self._metrics_url}: no memory for the answer") from error

    async def alerts(self) -> Alerts:
        try:
            listed = await get(self._session, self._alerts_url, self._alertmanager)
            silences = await get(self._session, self._silences_url, self._alertmanager)
            states = await asyncio.to_thread(parse_alerts, listed)
            return Alerts(states, await asyncio.to_thread(parse_silences, silences))
        except MemoryError as error:
            raise UnknownError(f"{self._alerts_url}: no memory for the answer") from error


async def get(session: aiohttp.ClientSession, url: str, door: Door | None = None) -> bytes:
    """The body of an answer. Raises UnknownError for one that is late, too long, or no answer."""
    options = {} if door is None else dict(await asyncio.to_thread(door.options))
    options["headers"] = {**HURRY, **options.get("headers", {})}
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    try:
        # A redirect would carry what is shown here elsewhere.
        async with session.get(url, timeout=timeout, allow_redirects=False, **options) as answer:
            if answer.status != HTTPStatus.OK:
                raise UnknownError(f"{url} answered {answer.status}")
            body = await answer.content.read(ANSWER_BYTES + 1)
            while len(body) <= ANSWER_BYTES and (
                more := await answer.content.read(ANSWER_BYTES + 1 - len(body))
            ):
                body += more
    except TimeoutError as error:
        raise UnknownError(f"{url} did not answer within {ANSWER_SECONDS} s") from error
    except aiohttp.ClientError as error:
        raise UnknownError(f"{url}: {error}") from error
    if len(body) > ANSWER_BYTES:
        raise UnknownError(f"{url} answered with more than {ANSWER_BYTES} bytes")
    return body
