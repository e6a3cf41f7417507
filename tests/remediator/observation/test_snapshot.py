from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import CounterMetricFamily
from tests.remediator.samples import FINGERPRINT, GIB, ROLLOUT

from trainwarden_exporter.collectors.host import HostCollector
from trainwarden_exporter.collectors.workers import WorkersCollector
from trainwarden_exporter.host.config import HostConfig
from trainwarden_exporter.processes.config import RunWorkers
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.scrape import exposition
from trainwarden_exporter.scrape.scraper import SUCCESS
from trainwarden_remediator.alertmanager.api import (
    AlertState,
    Silence,
    SilenceMatcher,
    is_silenced,
    parse_alert_states,
    parse_silences,
)
from trainwarden_remediator.config.endpoints import Endpoint
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.observation import snapshot
from trainwarden_remediator.observation.exporter_page import parse_exporter_page
from trainwarden_remediator.observation.model import ExporterState, WorkerState
from trainwarden_remediator.observation.snapshot import (
    AlertmanagerState,
    HttpObserver,
    take_snapshot,
)

PAGE = """\
# HELP trainwarden_collector_success Whether the collector could observe.
# TYPE trainwarden_collector_success gauge
trainwarden_collector_success{collector="host"} 1
trainwarden_collector_success{collector="workers"} 1
trainwarden_memory_effective_available_bytes 2.147483648e+10
trainwarden_memory_available_floor_bytes 2.147483648e+09
trainwarden_worker_processes{run="demo",worker="rollout-0",role="rollout"} 1
trainwarden_worker_expected_processes{run="demo",worker="rollout-0",role="rollout"} 1
trainwarden_worker_memory_bytes{run="demo",worker="rollout-0",role="rollout"} 9.663676416e+09
trainwarden_worker_start_timestamp_seconds{run="demo",worker="rollout-0",role="rollout"} 1.7e+09
trainwarden_worker_memory_limit_bytes{run="demo",worker="rollout-0",role="rollout"} 8.589934592e+09
trainwarden_worker_finished{run="demo",worker="rollout-0",role="rollout"} 0
trainwarden_worker_processes{run="demo",worker="trainer",role="trainer"} 0
trainwarden_worker_expected_processes{run="demo",worker="trainer",role="trainer"} 2
trainwarden_worker_memory_bytes{run="demo",worker="trainer",role="trainer"} 0
trainwarden_worker_finished{run="demo",worker="trainer",role="trainer"} 1
trainwarden_worker_age_limit_seconds{run="demo",worker="trainer",role="trainer"} 3600
"""

LISTED = [
    {
        "annotations": {},
        "endsAt": "2027-01-15T08:04:00.000Z",
        "fingerprint": FINGERPRINT,
        "labels": {"alertname": "TrainingWorkerMemoryOverLimit"},
        "receivers": [{"name": "trainwarden-remediator"}],
        "startsAt": "2027-01-15T08:00:00.000Z",
        "status": {"inhibitedBy": [], "silencedBy": [], "state": "active"},
        "updatedAt": "2027-01-15T08:00:00.000Z",
    }
]


SILENCES = [
    {
        "id": "b1f7bb5c",
        "matchers": [
            {"isEqual": True, "isRegex": False, "name": "run", "value": "demo"},
            {"isEqual": True, "isRegex": True, "name": "alertname", "value": "Training.*"},
        ],
        "status": {"state": "active"},
        "comment": "I look into it",
        "createdBy": "ann",
        "startsAt": "2027-01-15T08:00:00.000Z",
        "endsAt": "2027-01-15T10:00:00.000Z",
        "updatedAt": "2027-01-15T08:00:00.000Z",
    },
    {
        "id": "c2",
        "matchers": [{"isRegex": False, "name": "run", "value": "second"}],
        "status": {"state": "expired"},
    },
]
SILENCE = Silence(
    (
        SilenceMatcher("run", "demo"),
        SilenceMatcher("alertname", "Training.*", is_regex=True, is_equal=True),
    )
)


def test_reads_what_the_exporter_shows() -> None:
    assert parse_exporter_page(PAGE.encode()) == ExporterState(
        workers={
            ROLLOUT: WorkerState(
                processes=1,
                expected=1,
                memory_bytes=9 * GIB,
                finished=False,
                started_at=1.7e9,
                memory_limit_bytes=8 * GIB,
                age_limit_seconds=None,
            ),
            WorkerKey("demo", "trainer"): WorkerState(
                processes=0,
                expected=2,
                memory_bytes=0,
                finished=True,
                started_at=None,
                memory_limit_bytes=None,
                age_limit_seconds=3600,
            ),
        },
        memory_available_bytes=20 * GIB,
        memory_floor_bytes=2 * GIB,
    )


def test_reads_a_page_of_the_real_collectors() -> None:
    worker = {"name": "ghost", "match": {"command": "no such command, sure"}, "memory_limit": "5B"}
    run = RunWorkers.model_validate({"name": "demo", "workers": [worker]})
    success = SUCCESS.family()
    for name in ("host", "workers"):
        success.add_metric([name], 1)
    families = [
        success,
        *HostCollector(HostConfig()).collect(),
        *WorkersCollector((run,)).collect(),
    ]
    exporter = parse_exporter_page(exposition.render(families).body)
    assert exporter.memory_available_bytes > 0
    assert exporter.memory_floor_bytes > 0
    assert exporter.workers == {
        WorkerKey("demo", "ghost"): WorkerState(
            processes=0,
            expected=1,
            memory_bytes=0,
            finished=False,
            started_at=None,
            memory_limit_bytes=5,
            age_limit_seconds=None,
            unconfirmed=1,
        )
    }


@pytest.mark.parametrize(
    ("taken", "put"),
    [
        ('success{collector="host"} 1', 'success{collector="host"} 0'),
        ('success{collector="workers"} 1', 'success{collector="workers"} 0'),
        ('trainwarden_collector_success{collector="workers"} 1\n', ""),
        ("trainwarden_memory_effective_available_bytes", "some_other_bytes"),
        ("trainwarden_memory_available_floor_bytes", "some_other_bytes"),
        ('worker_expected_processes{run="demo",worker="trainer"', 'worker_x{run="",worker=""'),
        ('worker_memory_bytes{run="demo",worker="trainer"', 'worker_y{run="",worker=""'),
        ('role="trainer"} 3600', 'role="trainer"} many'),
        ('role="trainer"} 3600', 'role="trainer'),
    ],
)
def test_a_page_that_is_half_blind_is_no_ground(taken: str, put: str) -> None:
    assert taken in PAGE
    with pytest.raises(ObservationError):
        parse_exporter_page(PAGE.replace(taken, put).encode())


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>hello</html>", b"\xff\xfe", b"\0", b'a{b="c", =d} 1\n', b"{", b"a 1 2 3 4\n"],
)
def test_what_is_no_page_is_no_ground(body: bytes) -> None:
    with pytest.raises(ObservationError):
        parse_exporter_page(body)


@given(st.binary(max_size=40), st.integers(0, len(PAGE)), st.integers(0, 40))
def test_a_spoilt_page_is_read_or_refused(noise: bytes, at: int, cut: int) -> None:
    page = PAGE.encode()
    try:
        exporter = parse_exporter_page(page[:at] + noise + page[at + cut :])
    except ObservationError:
        return
    assert isinstance(exporter, ExporterState)


# what Alertmanager says


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"state": "active", "silencedBy": [], "inhibitedBy": []}, AlertState.ACTIVE),
        (
            {"state": "active", "silencedBy": [], "inhibitedBy": [], "mutedBy": []},
            AlertState.ACTIVE,
        ),
        ({"state": "suppressed", "silencedBy": ["a"], "inhibitedBy": []}, AlertState.SILENCED),
        ({"state": "suppressed", "silencedBy": ["a"], "inhibitedBy": ["b"]}, AlertState.SILENCED),
        ({"state": "suppressed", "silencedBy": [], "inhibitedBy": ["b"]}, AlertState.INHIBITED),
        ({"state": "suppressed", "silencedBy": [], "mutedBy": ["night"]}, AlertState.SILENCED),
        ({"state": "something new"}, AlertState.SILENCED),
    ],
)
def test_reads_how_an_alert_stands(status: dict[str, Any], state: AlertState) -> None:
    listed = [{**LISTED[0], "status": status}]
    assert parse_alert_states(json.dumps(listed).encode()) == {FINGERPRINT: state}


def test_an_alert_that_alertmanager_has_not_looked_at_yet_is_left_out() -> None:
    listed = [{**LISTED[0], "status": {"state": "unprocessed"}}]
    assert parse_alert_states(json.dumps(listed).encode()) == {}


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"{}", b'[{"fingerprint": 5}]', b'["a"]', b"<html>", b"[" * 10_000, b"\xff"],
)
def test_anything_else_is_unknown(body: bytes) -> None:
    with pytest.raises(ObservationError):
        parse_alert_states(body)


def test_reads_the_silences_that_are_in_force() -> None:
    assert parse_silences(json.dumps(SILENCES).encode()) == (SILENCE,)
    assert parse_silences(b"[]") == ()


@pytest.mark.parametrize(
    "body", [b"", b"null", b"{}", b'["a"]', b'[{"status": {"state": "active"}}]', b"<html>"]
)
def test_silences_that_are_none_are_unknown(body: bytes) -> None:
    with pytest.raises(ObservationError):
        parse_silences(body)


@pytest.mark.parametrize(
    ("matchers", "covered"),
    [
        ((SilenceMatcher("run", "demo"),), True),
        ((SilenceMatcher("run", "dem"),), False),
        ((SilenceMatcher("run", "dem", is_regex=True),), False),
        ((SilenceMatcher("run", "dem.", is_regex=True),), True),
        ((SilenceMatcher("run", "demo", is_equal=False),), False),
        ((SilenceMatcher("run", "x.*", is_regex=True, is_equal=False),), True),
        ((SilenceMatcher("run", "demo"), SilenceMatcher("worker", "trainer")), False),
        ((SilenceMatcher("gpu", ""),), True),
        ((SilenceMatcher("run", "(?P<not(re2", is_regex=True),), True),
    ],
)
def test_a_silence_covers_what_all_its_matchers_meet(
    matchers: tuple[SilenceMatcher, ...], *, covered: bool
) -> None:
    labels = {"run": "demo", "worker": "rollout-0"}
    assert is_silenced(labels, [Silence(matchers)]) is covered
    assert not is_silenced(labels, [])


# over HTTP

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def give_page(_: web.Request) -> web.StreamResponse:
    return web.Response(text=PAGE)


async def give_alerts(request: web.Request) -> web.StreamResponse:
    every = {"active": "true", "silenced": "true", "inhibited": "true"}
    assert request.query == every
    return web.json_response(LISTED)


async def give_silences(_: web.Request) -> web.StreamResponse:
    return web.json_response(SILENCES)


@asynccontextmanager
async def box(
    page: Handler = give_page, alerts: Handler = give_alerts, silences: Handler = give_silences
) -> AsyncIterator[HttpObserver]:
    """An observer of a small server with the given answers."""
    app = web.Application()
    app.add_routes([web.get("/metrics", page), web.get("/am/api/v2/alerts", alerts)])
    app.add_routes([web.get("/elsewhere", give_page), web.get("/am/api/v2/silences", silences)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (address,) = runner.addresses
    url = f"http://127.0.0.1:{address[1]}"
    async with aiohttp.ClientSession() as session:
        yield HttpObserver(session, Endpoint(url=url), Endpoint(url=f"{url}/am"))
    await runner.cleanup()


async def test_asks_exporter_and_alertmanager() -> None:
    async with box() as observer:
        seen = await take_snapshot(observer)
    assert seen.alerts == AlertmanagerState({FINGERPRINT: AlertState.ACTIVE}, (SILENCE,))
    assert seen.exporter == parse_exporter_page(PAGE.encode())
    assert seen.unknown == ""


async def test_asks_the_exporter_for_an_answer_in_time_whatever_hangs_there() -> None:
    async def page(request: web.Request) -> web.StreamResponse:
        budget = float(request.headers["X-Prometheus-Scrape-Timeout-Seconds"])
        assert 0 < budget < snapshot.RESPONSE_TIMEOUT_SECONDS
        return await give_page(request)

    async with box(page=page) as observer:
        assert (await take_snapshot(observer)).exporter is not None


def answering(status: int, body: bytes = b"", **headers: str) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=body, headers=named)

    return answer


UNUSABLE: dict[str, Handler] = {
    "an error": answering(500, PAGE.encode()),
    "not found": answering(404),
    "no content": answering(204),
    "a redirect": answering(302, Location="/elsewhere"),
    "a repeated redirect": answering(307, Location="/elsewhere"),
    "unauthorized": answering(401),
    "garbage": answering(200, b"\x00\x01garbage{"),
    "nothing": answering(200),
    "spoilt compression": answering(200, b"not gzip at all", Content_Encoding="gzip"),
}


@pytest.mark.parametrize("page", UNUSABLE.values(), ids=UNUSABLE)
async def test_an_unusable_answer_is_unknown_and_does_not_spoil_the_other(page: Handler) -> None:
    async with box(page=page) as observer:
        seen = await take_snapshot(observer)
        assert seen.exporter is None
        assert seen.alerts is not None
        assert seen.unknown
    for part in ("alerts", "silences"):
        async with box(**{part: page}) as observer:
            seen = await take_snapshot(observer)
            assert seen.alerts is None
            assert seen.exporter is not None


async def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MAX_RESPONSE_BYTES", 100_000)

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(10_000):
            await response.write(b"# a comment without end\n" * 100)
        return response

    async with box(page=endless) as observer:
        with pytest.raises(ObservationError, match="more than 100000 bytes"):
            await observer.observe()


async def test_an_answer_that_does_not_come_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot, "RESPONSE_TIMEOUT_SECONDS", 0.1)
    over = asyncio.Event()

    async def silent(_: web.Request) -> web.StreamResponse:
        await over.wait()
        return web.Response()

    async def drips(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"#")
        await over.wait()
        return response

    for handler in (silent, drips):
        over.clear()
        async with box(page=handler) as observer:
            with pytest.raises(ObservationError, match="did not respond"):
                await observer.observe()
            over.set()


async def test_a_connection_that_breaks_is_unknown() -> None:
    async def breaks(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"trainwarden")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with box(page=breaks) as observer:
        with pytest.raises(ObservationError):
            await observer.observe()


async def test_nobody_listening_is_unknown(unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    async with aiohttp.ClientSession() as session:
        seen = await take_snapshot(HttpObserver(session, Endpoint(url=url), Endpoint(url=url)))
    assert (seen.exporter, seen.alerts) == (None, None)
    assert url in seen.unknown


async def test_a_server_that_does_not_speak_http_is_unknown() -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org ESMTP\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with aiohttp.ClientSession() as session:
        observer = HttpObserver(session, Endpoint(url=url), Endpoint(url=url))
        with pytest.raises(ObservationError):
            await observer.observe()
    server.close()
    await server.wait_closed()


def test_a_page_of_counters_alone_shows_no_worker() -> None:
    family = CounterMetricFamily("trainwarden_worker_restarts", "x", labels=("run",))
    family.add_metric(["demo"], 3)
    with pytest.raises(ObservationError):
        parse_exporter_page(exposition.render([family]).body)
