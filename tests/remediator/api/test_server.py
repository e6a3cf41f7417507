from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from trainwarden_exporter.scrape.exposition import RenderedPage
from trainwarden_exporter.webserver import shared_calls
from trainwarden_remediator.api.server import SharedPages

REQUESTS = 30


async def test_requests_for_a_page_that_arrive_together_share_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_calls, "SHARED_SECONDS", 1000.0)
    rendered, arrived, gate = Mock(), Mock(), asyncio.Event()

    async def render(_: web.Request) -> RenderedPage:
        rendered()
        await gate.wait()
        return RenderedPage(b"page", {"Content-Type": "text/plain"})

    page = SharedPages().handler(render)

    async def answer(request: web.Request) -> web.Response:
        arrived()
        if arrived.call_count == REQUESTS:
            asyncio.get_running_loop().call_later(0, gate.set)
        return await page(request)

    app = web.Application()
    app.router.add_get("/", answer)
    async with TestClient(TestServer(app)) as client, asyncio.timeout(60):

        async def text() -> str:
            async with client.get("/") as response:
                return await response.text()

        assert await asyncio.gather(*(text() for _ in range(REQUESTS))) == ["page"] * REQUESTS
    assert rendered.call_count == 1


async def test_a_page_that_was_rendered_is_not_used_again() -> None:
    rendered = Mock()

    async def render(_: web.Request) -> RenderedPage:
        rendered()
        return RenderedPage(b"page", {"Content-Type": "text/plain"})

    app = web.Application()
    app.router.add_get("/", SharedPages().handler(render))
    async with TestClient(TestServer(app)) as client:
        for _ in range(3):
            async with client.get("/") as response:
                assert await response.text() == "page"
    assert rendered.call_count == 3
