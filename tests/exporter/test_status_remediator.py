"""What the status page learns from a remediator, and how little a bad one can do to it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from trainwarden_exporter.app import Exporter
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.inference.questions import Answer, Contact, Question
from trainwarden_exporter.remediation import asking
from trainwarden_exporter.remediation.asking import ask, read
from trainwarden_exporter.remediation.config import RemediatorConfig
from trainwarden_exporter.remediation.told import MOST, Told, parse_told
from trainwarden_exporter.web import build_app
from trainwarden_exporter.yamlfile import parse

ALERT = {
    "alert": "TrainingWorkerGone",
    "run": "grpo",
    "worker": "rollout-0",
    "since": 1e9,
    "tone": "warn",
    "verdict": "waits",
    "reason": "too soon",
}
ANSWER: dict[str, Any] = {
    "mode": "act",
    "tone": "warn",
    "verdict": "Watching 1 incident.",
    "open_alerts": 1,
    "alerts": [ALERT],
    "actions": [],
    "something": "of a newer version",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def told_by(handler: Handler) -> Told | str | None:
    app = web.Application()
    app.router.add_get("/status.json", handler)
    async with TestServer(app) as server:
        return await ask(RemediatorConfig(url=str(server.make_url(""))))


def answering(answer: web.Response) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        return answer

    return handle


async def test_what_it_says_is_taken() -> None:
    told = await told_by(answering(web.json_response(ANSWER)))
    assert isinstance(told, Told)
    assert (told.mode, told.open_alerts, told.alerts[0].reason) == ("act", 1, "too soon")


async def test_none_is_asked_where_none_is_configured() -> None:
    assert await ask(None) is None


async def test_where_nobody_listens_that_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert await ask(RemediatorConfig(url=url)) == "connection refused"


async def test_one_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    over = asyncio.Event()

    async def never(_: web.Request) -> web.Response:
        await over.wait()
        return web.Response()

    hasty = Question("standing", "/status.json", patience=0.05)
    monkeypatch.setattr(asking, "_QUESTION", hasty)
    app = web.Application()
    app.router.add_get("/status.json", never)
    async with TestServer(app) as server:
        try:
            assert await ask(RemediatorConfig(url=str(server.make_url("")))) == (
                "no answer within 0.05 s"
            )
        finally:
            over.set()


async def test_no_redirect_is_followed() -> None:
    away = web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})
    assert await told_by(answering(away)) == "it answered with status 302"


async def test_an_endless_answer_is_cut_off() -> None:
    endless = web.Response(body=b" " * (600 << 10))
    assert await told_by(answering(endless)) == "the body is longer than 524288 bytes"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(Contact.REFUSED, detail="connection refused"), "connection refused"),
        (
            Answer(Contact.ANSWERED, 401),
            "it asks who is there, and this page has no password for it",
        ),
        (Answer(Contact.ANSWERED, 404, b"not found"), "it answered with status 404"),
        (Answer(Contact.ANSWERED, 200, b"<html>"), "its answer is not understood"),
    ],
)
def test_an_answer_that_tells_nothing_is_explained(answer: Answer, said: str) -> None:
    assert read(answer) == said


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "attack"},
        {"tone": 'bad" onload="x'},
        {"open_alerts": -1},
        {"verdict": "x" * 3000},
        {"alerts": [ALERT] * (MOST + 1)},
        {"alerts": [{**ALERT, "since": "NaN"}]},
        {"alerts": [{**ALERT, "since": 1e300}]},
        {"actions": "none"},
    ],
)
def test_what_does_not_fit_is_refused_whole_and_not_repeated(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^its answer is not understood$"):
        parse_told(json.dumps(ANSWER | change).encode())


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
        return web.json_response(ANSWER)

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
            assert "the remediator cannot be asked" in await gone.text()
            path.write_text("")
            assert (await client.post("/-/reload")).status == 200
            assert "Remediator" not in await (await client.get("/")).text()
