"""What the exporter answers over HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.core import Metric as AnyFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from trainwarden_exporter.api import server
from trainwarden_exporter.api.server import build_app, parse_budget
from trainwarden_exporter.app import Exporter
from trainwarden_exporter.scrape.collector import Collector, Family, Metric
from trainwarden_exporter.scrape.scraper import Outcome

APPLES = Metric("apples", "gauge", "Apples seen.")

Client = TestClient[web.Request, web.Application]


class Orchard(Collector):
    name = "orchard"
    metrics = (APPLES,)

    def __init__(self, behaviour: Callable[[], object] = lambda: None) -> None:
        self.behaviour = behaviour

    def collect(self) -> Iterable[Family]:
        self.behaviour()
        apples = APPLES.family()
        apples.add_metric([], 3)
        return [apples]


class Cellar(Orchard):
    name = "cellar"
    metrics = (Metric("apples", "gauge", "Apples in the cellar."),)

    def collect(self) -> Iterable[Family]:
        return []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "exporter.yml"
    path.write_text("")
    return path


@pytest.fixture
def orchard() -> Orchard:
    return Orchard()


@pytest.fixture
def exporter(path: Path, orchard: Orchard) -> Exporter:
    return Exporter(path, build=lambda _: [orchard, Cellar()])


@pytest.fixture
async def client(exporter: Exporter) -> AsyncIterator[Client]:
    async with TestClient(TestServer(build_app(exporter))) as client:
        yield client


def write(path: Path, text: str) -> None:
    path.write_text(text)


async def metrics(client: Client, *, query: str = "", **headers: str) -> dict[str, float]:
    sent = {key.replace("_", "-"): value for key, value in headers.items()}
    async with client.get(f"/metrics{query}", headers=sent) as response:
        assert response.status == 200
        return {
            sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
            for family in parse_text(await response.text())
            for sample in family.samples
        }


async def test_metrics_are_served_as_text(client: Client) -> None:
    values = await metrics(client)
    assert values["apples"] == 3
    assert values["trainwarden_collector_success[orchard]"] == 1
    assert values["trainwarden_collector_success[cellar]"] == 1
    assert values["trainwarden_config_last_reload_successful"] == 1
    assert values["process_open_fds"] > 0


async def test_metrics_are_served_as_openmetrics(client: Client) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    async with client.get("/metrics", headers={"Accept": accept}) as response:
        assert response.content_type == "application/openmetrics-text"
        families = list(parse_openmetrics(await response.text()))  # type: ignore[no-untyped-call]
    assert "apples" in {family.name for family in families}


async def test_metrics_are_served_compressed(client: Client) -> None:
    for coding, expected in (("gzip", "gzip"), ("gzip;q=0", None), ("identity", None)):
        async with client.get("/metrics", headers={"Accept-Encoding": coding}) as response:
            assert response.headers.get("Content-Encoding") == expected
            assert "apples 3.0" in await response.text()


async def test_an_odd_request_is_still_answered(client: Client) -> None:
    values = await metrics(
        client,
        Accept="application/openmetrics-text;version=abc;;,=",
        Accept_Encoding=";;q=,",
        X_Prometheus_Scrape_Timeout_Seconds="soon",
    )
    assert values["apples"] == 3


async def test_only_the_collectors_asked_for_are_run(client: Client) -> None:
    values = await metrics(client, query="?collect[]=cellar")
    assert "trainwarden_collector_success[cellar]" in values
    assert "trainwarden_collector_success[orchard]" not in values
    assert "apples" not in values


async def test_a_collector_that_is_not_known_is_a_bad_request(client: Client) -> None:
    async with client.get("/metrics?collect[]=orchard&collect[]=<b>") as response:
        assert response.status == 400
        assert response.content_type == "text/plain"
        assert await response.text() == "unknown collector: <b>\n"


async def test_a_collector_that_fails_leaves_the_page_whole(
    client: Client, orchard: Orchard
) -> None:
    def fail() -> None:
        raise OSError("hail")

    orchard.behaviour = fail
    values = await metrics(client)
    assert values["trainwarden_collector_success[orchard]"] == 0
    assert values["trainwarden_collector_success[cellar]"] == 1
    assert "apples" not in values
    async with client.get("/") as response:
        assert "OSError: hail" in await response.text()


async def test_a_collector_that_hangs_is_left_out_when_the_scrape_is_due(
    client: Client, orchard: Orchard
) -> None:
    opened = threading.Event()
    orchard.behaviour = lambda: opened.wait(30)
    try:
        values = await asyncio.wait_for(
            metrics(client, X_Prometheus_Scrape_Timeout_Seconds="0.1"), timeout=10
        )
        assert values["trainwarden_collector_success[orchard]"] == 0
        assert values["trainwarden_collector_success[cellar]"] == 1
        async with client.get("/-/healthy") as response:
            assert response.status == 200
    finally:
        opened.set()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 10.0),
        ("10", 9.5),
        ("5", 4.5),
        ("1", 0.9),
        ("0.1", 0.09),
        ("60", 59.5),
        ("1e9", 119.5),
        ("inf", 119.5),
        ("0", 10.0),
        ("-3", 10.0),
        ("-inf", 10.0),
        ("nan", 10.0),
        ("", 10.0),
        ("ten", 10.0),
        ("1" * 5000, 119.5),
    ],
)
def test_the_budget_of_a_scrape_is_its_timeout_less_a_margin(
    header: str | None, seconds: float
) -> None:
    assert parse_budget(header) == pytest.approx(seconds)


async def test_the_status_page_is_for_a_browser(client: Client) -> None:
    async with client.get("/") as response:
        assert response.status == 200
        assert response.content_type == "text/html"
        assert response.charset == "utf-8"
        assert "orchard" in await response.text()


async def test_it_is_always_healthy_and_ready_when_it_is_ready(
    client: Client, exporter: Exporter
) -> None:
    async def statuses() -> list[int]:
        found = []
        for name in ("healthy", "ready"):
            async with client.get(f"/-/{name}") as response:
                found.append(response.status)
        return found

    assert await statuses() == [200, 503]
    exporter.readiness.ready = True
    assert await statuses() == [200, 200]


async def test_a_reload_is_asked_for_by_post(client: Client, path: Path) -> None:
    async with client.post("/-/reload") as response:
        assert (response.status, await response.text()) == (200, "reloaded\n")

    write(path, "rnus: 3\nhost: 4\n")
    async with client.post("/-/reload") as response:
        assert response.status == 500
        assert (await response.text()).splitlines() == [
            f"{path}:1: rnus: unknown key (did you mean runs?)",
            f"{path}:2: host: expected a mapping",
        ]
    assert (await metrics(client))["trainwarden_config_last_reload_successful"] == 0
    async with client.get("/") as response:
        assert "rnus: unknown key" in await response.text()

    write(path, "")
    async with client.post("/-/reload") as response:
        assert response.status == 200
    assert (await metrics(client))["trainwarden_config_last_reload_successful"] == 1


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", "/-/reload", 405),
        ("POST", "/metrics", 405),
        ("GET", "/nothing", 404),
        ("GET", "/metrics/", 404),
        ("GET", "/-/", 404),
    ],
)
async def test_anything_else_is_refused(
    client: Client, method: str, target: str, expected: int
) -> None:
    async with client.request(method, target) as response:
        assert response.status == expected
        assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("target", ["/", "/metrics", "/-/healthy"])
async def test_head_is_answered_as_get_without_the_body(client: Client, target: str) -> None:
    async with client.head(target) as response:
        assert response.status == 200
        assert int(response.headers["Content-Length"]) > 0
        assert await response.read() == b""


@pytest.mark.parametrize("target", ["/", "/metrics", "/-/healthy", "/nothing"])
async def test_every_answer_forbids_what_it_does_not_need(client: Client, target: str) -> None:
    async with client.get(target) as response:
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["Content-Security-Policy"].startswith("default-src 'none'; ")
        assert response.headers["Server"] == "trainwarden"


async def test_many_scrapes_at_once_are_all_answered(client: Client) -> None:
    async with ClientSession() as session:

        async def scrape() -> int:
            async with session.get(client.make_url("/metrics")) as response:
                await response.read()
                return response.status

        assert set(await asyncio.gather(*(scrape() for _ in range(50)))) == {200}


async def test_scrapes_at_once_share_one_collection_and_one_page(
    path: Path, orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = Exporter(path, build=lambda _: [orchard])
    collected, rendered = list[float](), list[float]()
    go_on, asked = threading.Event(), asyncio.Semaphore(0)
    scrape, families = server._scrape, exporter.exporter_families

    async def counted_scrape(
        request: web.Request, names: Sequence[str] | None = None
    ) -> tuple[Outcome, ...]:
        asked.release()
        return await scrape(request, names)

    def counted_exporter_families() -> list[AnyFamily]:
        rendered.append(1)
        return families()

    monkeypatch.setattr(server, "_scrape", counted_scrape)
    monkeypatch.setattr(exporter, "exporter_families", counted_exporter_families)

    def collect() -> None:
        collected.append(1)
        go_on.wait(30)

    orchard.behaviour = collect

    wishes = ["text/plain"] * 9 + ["application/openmetrics-text"]
    async with TestClient(TestServer(build_app(exporter))) as client:

        async def page(accept: str) -> str:
            async with client.get("/metrics", headers={"Accept": accept}) as response:
                return await response.text()

        pages = asyncio.gather(*(page(accept) for accept in wishes))
        for _ in wishes:
            await asked.acquire()
        go_on.set()
        *texts, openmetrics = await pages
        assert len(set(texts)) == 1
        assert openmetrics.endswith("# EOF\n")
        assert (len(collected), len(rendered)) == (1, 2)
        await metrics(client)
        assert (len(collected), len(rendered)) == (2, 3), "the next one shares nothing with them"
