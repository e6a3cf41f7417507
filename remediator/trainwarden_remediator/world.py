"""Asks the world again just before an act, and after it: Alertmanager, and the exporter's eyes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Protocol, TypeVar

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel, TypeAdapter, ValidationError

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.exceptions import UnknownError

T = TypeVar("T")

ANSWER_SECONDS = 5
"""How long the exporter or Alertmanager may take to answer."""

HURRY = {"X-Prometheus-Scrape-Timeout-Seconds": str(ANSWER_SECONDS - 1)}
"""Makes the exporter answer in time with what it sees, also while one of its collectors hangs."""

ANSWER_BYTES = 64 * 1024 * 1024
"""The longest answer that is read."""


class AlertState(StrEnum):
    """How an alert stands at Alertmanager."""

    ACTIVE = "active"
    SILENCED = "silenced"
    INHIBITED = "inhibited"


@dataclass(frozen=True, slots=True)
class WorkerSight:
    """One worker as the exporter shows it. None where it shows nothing."""

    processes: float
    expected: float
    resident_bytes: float
    finished: bool
    started_at: float | None
    """Unix seconds; that of its oldest living process."""
    memory_limit_bytes: float | None
    age_limit_seconds: float | None


@dataclass(frozen=True, slots=True)
class Sight:
    """What the exporter sees in one scrape."""

    workers: Mapping[WorkerKey, WorkerSight]
    memory_available_bytes: float
    memory_floor_bytes: float
    gpu_orphans: float | None = None
    """Holds on GPUs by processes of no worker; None where the exporter cannot tell."""


@dataclass(frozen=True, slots=True)
class World:
    """One look: what could not be learnt is None, and `unknown` says why."""

    alerts: Mapping[str, AlertState] | None
    """Every alert that Alertmanager knows, by fingerprint."""
    sight: Sight | None
    unknown: str = ""


class Eyes(Protocol):
    """Whoever can be asked; a test may answer in the world's place."""

    async def look(self) -> Sight:
        """What the exporter sees now. Raises UnknownError."""

    async def alerts(self) -> Mapping[str, AlertState]:
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
        self, session: aiohttp.ClientSession, *, exporter_url: str, alertmanager_url: str
    ) -> None:
        self._session = session
        self._metrics_url = f"{exporter_url}/metrics"
        # Nothing of an alert goes into the URL: all alerts are asked for, and picked from here.
        self._alerts_url = (
            f"{alertmanager_url}/api/v2/alerts?active=true&silenced=true&inhibited=true"
        )

    async def look(self) -> Sight:
        body = await self._get(self._metrics_url)
        return await asyncio.to_thread(parse_sight, body)

    async def alerts(self) -> Mapping[str, AlertState]:
        body = await self._get(self._alerts_url)
        return await asyncio.to_thread(parse_alerts, body)

    async def _get(self, url: str) -> bytes:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        try:
            async with self._session.get(
                url, timeout=timeout, headers=HURRY, allow_redirects=False
            ) as answer:
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


class _Status(BaseModel):
    state: str
    silencedBy: list[str] = []  # noqa: N815 - Alertmanager's spelling
    inhibitedBy: list[str] = []  # noqa: N815 - Alertmanager's spelling


class _ListedAlert(BaseModel):
    fingerprint: str
    status: _Status


_LISTED = TypeAdapter(list[_ListedAlert])


def parse_alerts(body: bytes) -> Mapping[str, AlertState]:
    """How each alert stands in an answer of Alertmanager's `/api/v2/alerts`, by fingerprint.

    Raises UnknownError for anything else. An alert not processed yet is left out.
    """
    try:
        listed = _LISTED.validate_json(body)
    except ValidationError as error:
        raise UnknownError("Alertmanager answered with something else than alerts") from error
    return {
        alert.fingerprint: _alert_state(alert.status)
        for alert in listed
        if alert.status.state != "unprocessed"
    }


def _alert_state(status: _Status) -> AlertState:
    if status.inhibitedBy and not status.silencedBy:
        return AlertState.INHIBITED
    # Newer versions also mute by time of day, and list that elsewhere: somebody wants it quiet.
    return AlertState.ACTIVE if status.state == "active" else AlertState.SILENCED


def parse_sight(body: bytes) -> Sight:
    """What an exporter's page shows of workers and memory.

    Raises UnknownError when the page cannot be read, or a collector that must speak has failed:
    a half-blind look is no ground to act on.
    """
    values: dict[str, dict[tuple[str, str], float]] = {}
    try:
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                key = _key(sample.name, sample.labels)
                values.setdefault(sample.name, {})[key] = sample.value
    except Exception as error:  # the parser stumbles over garbage in ways of its own
        raise UnknownError(f"the exporter's page cannot be read: {error}") from error

    for collector in ("host", "workers"):
        if values.get("trainwarden_collector_success", {}).get((collector, "")) != 1:
            raise UnknownError(f"the exporter's {collector} collector does not report success")

    def box(name: str) -> float:
        try:
            return values[f"trainwarden_memory_{name}_bytes"]["", ""]
        except KeyError:
            raise UnknownError(f"the exporter shows no memory {name}") from None

    return Sight(
        workers={key: _worker(key, values) for key in _worker_keys(values)},
        memory_available_bytes=box("effective_available"),
        memory_floor_bytes=box("available_floor"),
        gpu_orphans=_orphans(values),
    )


def _orphans(values: Mapping[str, Mapping[tuple[str, str], float]]) -> float | None:
    if values.get("trainwarden_collector_success", {}).get(("gpu", "")) != 1:
        return None
    found = values.get("trainwarden_gpu_orphan_holders")
    return None if found is None else sum(found.values())


def _key(name: str, labels: Mapping[str, str]) -> tuple[str, str]:
    if name == "trainwarden_collector_success":
        return labels.get("collector", ""), ""
    if name == "trainwarden_gpu_orphan_holders":
        return labels.get("gpu", ""), labels.get("uuid", "")
    return labels.get("run", ""), labels.get("worker", "")


def _worker_keys(values: Mapping[str, Mapping[tuple[str, str], float]]) -> Iterable[WorkerKey]:
    return (WorkerKey(*key) for key in values.get("trainwarden_worker_processes", {}))


def _worker(key: WorkerKey, values: Mapping[str, Mapping[tuple[str, str], float]]) -> WorkerSight:
    def maybe(name: str) -> float | None:
        return values.get(f"trainwarden_worker_{name}", {}).get(key)

    def needed(name: str) -> float:
        if (value := maybe(name)) is None:
            raise UnknownError(f"the exporter shows no {name} of worker {key.worker}")
        return value

    return WorkerSight(
        processes=needed("processes"),
        expected=needed("expected_processes"),
        resident_bytes=needed("resident_bytes"),
        finished=bool(maybe("finished")),
        started_at=maybe("start_timestamp_seconds"),
        memory_limit_bytes=maybe("memory_limit_bytes"),
        age_limit_seconds=maybe("age_limit_seconds"),
    )
