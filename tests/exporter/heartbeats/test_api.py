"""Heartbeats are sent to a real server, and seen by the next scrape."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import bcrypt
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families as parse_text

from trainwarden_exporter.api.server import build_app
from trainwarden_exporter.app import Exporter
from trainwarden_exporter.webserver.server import WebServer

CONFIG = """
runs: [{name: grpo}, {name: sft}]
heartbeats:
  - {name: trainer, run: grpo, interval: 1m}
  - {name: shared, run: grpo}
  - {name: shared, run: sft}
  - {name: backup}
"""

Client = TestClient[web.Request, web.Application]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "exporter.yml"
    write(path, CONFIG)
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.fixture
def exporter(path: Path) -> Exporter:
    return Exporter(path)


@pytest.fixture
async def client(exporter: Exporter) -> AsyncIterator[Client]:
    async with TestClient(TestServer(build_app(exporter))) as client:
        yield client


async def scraped(client: Client) -> dict[str, float]:
    """Values by name, run and the other label."""
    async with client.get("/metrics?collect[]=heartbeats&collect[]=progress") as response:
        found = {}
        for family in parse_text(await response.text()):
            for sample in family.samples:
                labels = dict(sample.labels)
                words = [sample.name.removeprefix("trainwarden_"), labels.pop("run", "")]
                found[" ".join([*words, *labels.values()])] = sample.value
        return found


async def test_a_beat_is_seen_by_the_next_scrape(client: Client) -> None:
    before = time.time()
    async with client.post("/heartbeat/trainer?step=1501") as response:
        assert response.status == 204
    values = await scraped(client)
    assert before <= values["heartbeat_timestamp_seconds grpo trainer"] <= time.time()
    assert values["heartbeat_beats_total grpo trainer"] == 1
    assert values["heartbeat_interval_seconds grpo trainer"] == 60
    assert values["heartbeat_step grpo trainer"] == 1501
    assert values["training_step grpo"] == 1501
    assert values["training_source_step grpo heartbeat/trainer"] == 1501
    assert "heartbeat_timestamp_seconds  backup" not in values
    assert values["heartbeat_awaited_since_timestamp_seconds  backup"] <= time.time()


async def test_a_beat_may_say_how_often_it_comes(client: Client) -> None:
    async with client.post("/heartbeat/backup?interval=5m") as response:
        assert response.status == 204
    assert (await scraped(client))["heartbeat_interval_seconds  backup"] == 300


@pytest.mark.parametrize(
    ("address", "status", "reason"),
    [
        ("/heartbeat/nobody", 404, "no such heartbeat is configured"),
        ("/heartbeat/trainer?run=sft", 404, "no such heartbeat is configured"),
        ("/heartbeat/shared", 400, "parameter run required, one of: grpo, sft"),
        ("/heartbeat/shared?run=sft", 204, ""),
        ("/heartbeat/trainer?step=-1", 400, "step is not a whole number"),
        ("/heartbeat/trainer?step=1e400", 400, "step is not a whole number"),
        ("/heartbeat/trainer?interval=soon", 400, "not a duration"),
        ("/heartbeat/trainer?interval=0", 400, "interval is not a duration"),
        ("/heartbeat/trainer?interval=nan", 400, "not a duration"),
        ("/heartbeat/tra%20iner", 400, "invalid name"),
        ("/heartbeat/trainer?run=%00", 400, "invalid name"),
        ("/heartbeat/", 404, ""),
    ],
)
async def test_what_cannot_be_taken_is_answered_with_the_reason(
    client: Client, address: str, status: int, reason: str
) -> None:
    async with client.post(address) as response:
        assert response.status == status
        assert reason in await response.text()


async def test_it_is_not_for_looking_at(client: Client) -> None:
    async with client.get("/heartbeat/trainer") as response:
        assert response.status == 405


async def test_a_body_is_not_read(client: Client) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536

    async with client.post("/heartbeat/trainer", data=b"x" * 100) as response:
        assert response.status == 204
    try:
        async with client.post("/heartbeat/trainer", data=endless()) as response:
            assert response.status == 204
    except ConnectionError:
        pass  # the server has closed while we were writing
    assert (await scraped(client))["heartbeat_beats_total grpo trainer"] == 2


async def test_names_that_are_not_configured_are_taken_where_that_is_wanted(
    client: Client, path: Path
) -> None:
    write(path, "heartbeats_accept: any")
    async with client.post("/-/reload") as response:
        assert response.status == 200
    async with client.post("/heartbeat/anything?run=whatever&step=5") as response:
        assert response.status == 204
    assert (await scraped(client))["heartbeat_step whatever anything"] == 5


async def test_what_came_before_and_after_a_reload_counts(client: Client) -> None:
    for step in (1, 2):
        async with client.post(f"/heartbeat/trainer?step={step}") as response:
            assert response.status == 204
        if step == 1:
            async with client.post("/-/reload") as response:
                assert response.status == 200
    values = await scraped(client)
    assert values["heartbeat_beats_total grpo trainer"] == 2
    assert values["training_step grpo"] == 2


async def test_strangers_beat_nothing(exporter: Exporter, tmp_path: Path) -> None:
    web_config = tmp_path / "web.yml"
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    write(web_config, f"basic_auth_users: {{ann: {hashed}}}\n")
    server = WebServer(build_app(exporter), listen_address="127.0.0.1:0", config_file=web_config)
    await server.start()
    host, port = server.addresses[0]
    answers = []
    try:
        async with ClientSession() as session:
            for login in (b"", b"ann:wrong", b"ann:secret"):
                headers = {"Authorization": f"Basic {b64encode(login).decode()}"} if login else {}
                address = f"http://{host}:{port}/heartbeat/trainer"
                async with session.post(address, headers=headers) as response:
                    answers.append(response.status)
    finally:
        await server.close()
    assert answers == [401, 401, 204]
    assert sum(beats.count for beats in exporter.heartbeats.all().values()) == 1
