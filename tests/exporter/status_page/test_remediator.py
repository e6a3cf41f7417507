"""What the status page learns from a remediator, and how little a bad one can do to it."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.waiting import until

from trainwarden_exporter.api.server import build_app
from trainwarden_exporter.app import Exporter
from trainwarden_exporter.collectors.progress import ProgressCollector
from trainwarden_exporter.config import RemediatorConfig
from trainwarden_exporter.config_file.loader import parse
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.inference.http_messages import HttpOutcome, HttpRequest, HttpResponse
from trainwarden_exporter.processes.config import hash_workers
from trainwarden_exporter.progress.holds import held_runs
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.tracker import ProgressTracker
from trainwarden_exporter.runtime.responsibility import NOBODY
from trainwarden_exporter.status_page import remediator_client
from trainwarden_exporter.status_page.remediator_client import (
    MAX_ENTRIES,
    ExporterIdentity,
    RemediatorStatus,
    fetch_status,
    hold_pollers,
    parse_answer,
    parse_status,
)

ALERT = {
    "alert": "TrainingWorkerGone",
    "run": "grpo",
    "worker": "rollout-0",
    "since": 1e9,
    "tone": "warn",
    "who_acts": "The remediator",
    "handling": "waits: too soon",
}
ANSWER: dict[str, Any] = {
    "exporter_file": "/srv/run/exporter.yml",
    "workers_hash": 8,
    "mode": "act",
    "tone": "warn",
    "verdict": "Watching 1 incident.",
    "open_alerts": 1,
    "alerts": [ALERT],
    "actions": [],
    "something": "of a newer version",
}

EXPORTER = ExporterIdentity(Path("/srv/run/exporter.yml"), 7)
EXPORTER_OF_NONE = ExporterIdentity(None, hash_workers(()))

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def status_from(handler: Handler) -> RemediatorStatus | str | None:
    app = web.Application()
    app.router.add_get("/status.json", handler)
    async with TestServer(app) as server:
        return await fetch_status(RemediatorConfig(url=str(server.make_url(""))), EXPORTER)


def answering(answer: web.Response) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        return answer

    return handle


async def test_what_it_says_is_taken() -> None:
    remediator = await status_from(answering(web.json_response(ANSWER)))
    assert isinstance(remediator, RemediatorStatus)
    assert (remediator.mode, remediator.open_alerts, remediator.alerts[0].handling) == (
        "act",
        1,
        "waits: too soon",
    )


@pytest.mark.parametrize(
    "other",
    [
        {"exporter_file": "/home/somebody/exporter.yml"},
        {"exporter_file": ""},
        {"workers_hash": None, "exporter_file": "exporter.yml"},
    ],
)
async def test_the_remediator_of_a_stranger_is_never_shown(other: dict[str, Any]) -> None:
    found = await status_from(answering(web.json_response(ANSWER | other)))
    assert found == "the remediator of another exporter.yml answers at its address"


async def test_a_copy_of_the_file_in_a_container_has_the_same_workers() -> None:
    copy = ANSWER | {"exporter_file": "/etc/trainwarden/exporter.yml", "workers_hash": 7}
    assert isinstance(await status_from(answering(web.json_response(copy))), RemediatorStatus)


HOLDS = ANSWER | {
    "holds": [{"run": "grpo", "worker": "", "who_acts": "root", "text": "held by root"}]
}
RUNS = [ProgressSpec(run, trainers=("trainer",)) for run in ("grpo", "sft")]


@pytest.mark.parametrize(
    ("answer", "held"),
    [
        (web.json_response(HOLDS), {"grpo"}),
        (web.json_response(HOLDS | {"exporter_file": "", "workers_hash": 8}), set()),
        (web.Response(status=503), set()),
    ],
)
async def test_the_holds_of_the_own_remediator_are_polled_and_unknown_ones_hold_nothing(
    answer: web.Response, held: set[str]
) -> None:
    app = web.Application()
    app.router.add_get("/status.json", answering(answer))
    async with TestServer(app) as server:
        pollers = hold_pollers(RemediatorConfig(url=str(server.make_url(""))), EXPORTER)
        assert held_runs(RUNS, pollers) == frozenset()
        ((_, poller),) = pollers
        await asyncio.to_thread(until, lambda: poller.failure or poller.last_result)
        assert held_runs(RUNS, pollers) == held
        assert (poller.failure is None) is bool(held)
        pollers.close()


async def test_none_is_asked_where_none_is_configured() -> None:
    assert await fetch_status(None, EXPORTER) is None


async def test_where_nobody_listens_that_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert await fetch_status(RemediatorConfig(url=url), EXPORTER) == "connection refused"


async def test_a_silent_remediator_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    over = asyncio.Event()

    async def never(_: web.Request) -> web.Response:
        await over.wait()
        return web.Response()

    hasty = HttpRequest("standing", "/status.json", timeout=0.05)
    monkeypatch.setattr(remediator_client, "_QUESTION", hasty)
    app = web.Application()
    app.router.add_get("/status.json", never)
    async with TestServer(app) as server:
        try:
            assert await fetch_status(RemediatorConfig(url=str(server.make_url(""))), EXPORTER) == (
                "no answer within 0.05 s"
            )
        finally:
            over.set()


@pytest.mark.parametrize(("seconds_later", "stays"), [(20, True), (40, False)])
async def test_a_remediator_that_answers_late_is_shown_as_it_was_until_its_alert_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds_later: float, *, stays: bool
) -> None:
    """A slow answer on a loaded host is no remediator that is gone."""
    over, late = asyncio.Event(), False
    well = ANSWER | {"workers_hash": hash_workers(()), "tone": "good", "who_acts": NOBODY}

    async def answer(_: web.Request) -> web.Response:
        if late:
            await over.wait()
        return web.json_response(well | {"alerts": [], "open_alerts": 0, "firing": []})

    asked = web.Application()
    asked.router.add_get("/status.json", answer)
    path, moment = tmp_path / "exporter.yml", [time.time()]
    hasty = HttpRequest("standing", "/status.json", timeout=0.05)
    async with TestServer(asked) as remediator:
        path.write_text(f"remediator: {{url: '{remediator.make_url('')}'}}\n")
        pollers = hold_pollers(RemediatorConfig(url=str(remediator.make_url(""))), EXPORTER_OF_NONE)
        collector = ProgressCollector([], ProgressTracker([]), holds=pollers)
        exporter = Exporter(path, build=lambda _: [collector], now=lambda: moment[0])
        async with TestClient(TestServer(build_app(exporter))) as client:
            assert (await (await client.get("/status.json")).json())["who_acts"] == NOBODY
            ((_, poller),) = pollers
            await asyncio.to_thread(until, lambda: poller.last_result)
            monkeypatch.setattr(remediator_client, "_QUESTION", hasty)
            late, moment[0] = True, moment[0] + seconds_later
            status = await (await client.get("/status.json")).json()
            assert (status["who_acts"] == NOBODY) is stays
            assert ("TrainingRemediatorDown" in status["first_steps"]) is not stays
            page = await (await client.get("/")).text()
            assert ("did not answer just now" in page) is stays
            assert ("no answer within 0.05 s" in page) is not stays
            over.set()
        pollers.close()


async def test_no_redirect_is_followed() -> None:
    away = web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})
    assert await status_from(answering(away)) == "response with status 302"


async def test_an_endless_answer_is_cut_off() -> None:
    endless = web.Response(body=b" " * (600 << 10))
    assert await status_from(answering(endless)) == "the body is longer than 524288 bytes"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (HttpResponse(HttpOutcome.REFUSED, detail="connection refused"), "connection refused"),
        (
            HttpResponse(HttpOutcome.ANSWERED, 401),
            "authentication required, and no password is configured for this page",
        ),
        (HttpResponse(HttpOutcome.ANSWERED, 404, b"not found"), "response with status 404"),
        (HttpResponse(HttpOutcome.ANSWERED, 200, b"<html>"), "invalid response"),
    ],
)
def test_an_answer_without_content_is_explained(answer: HttpResponse, message: str) -> None:
    assert parse_answer(answer) == message


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "attack"},
        {"tone": 'bad" onload="x'},
        {"open_alerts": -1},
        {"verdict": "x" * 3000},
        {"alerts": [ALERT] * (MAX_ENTRIES + 1)},
        {"alerts": [{**ALERT, "since": "NaN"}]},
        {"config_read_at": math.inf},
        {"alerts": [{**ALERT, "since": 1e300}]},
        {"actions": "none"},
    ],
)
def test_what_does_not_fit_is_refused_whole_and_not_repeated(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^invalid response$"):
        parse_status(json.dumps(ANSWER | change).encode())


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:10978", "file:///etc/passwd", "http://user:secret@127.0.0.1:10978", "http://"],
)
def test_a_url_that_cannot_be_meant_is_an_error(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"url: {url}", Path("exporter.yml"), RemediatorConfig)
    assert "secret" not in str(caught.value)


async def test_the_page_shows_it_and_stands_without_it(tmp_path: Path) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(ANSWER | {"exporter_file": str(path.resolve())})

    asked = web.Application()
    asked.router.add_get("/status.json", answer)
    path = tmp_path / "exporter.yml"
    async with TestServer(asked) as remediator:
        path.write_text(f"remediator: {{url: '{remediator.make_url('')}'}}\n")
        exporter = Exporter(path, build=lambda _: [])
        async with TestClient(TestServer(build_app(exporter))) as client:
            assert "TrainingWorkerGone" in await (await client.get("/")).text()
            await remediator.close()
            gone = await client.get("/")
            assert gone.status == 200
            assert "The remediator is unreachable" in await gone.text()
            path.write_text("")
            assert (await client.post("/-/reload")).status == 200
            assert "Remediator" not in await (await client.get("/")).text()
