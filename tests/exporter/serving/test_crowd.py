"""Real connections that ask nothing, against those that ask something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

from trainwarden_exporter.serving import webserver
from trainwarden_exporter.serving.webserver import WebServer

FEW, IDLE = 20, 100
ACCEPTED_AT_ONCE = 128
PATIENCE = 60.0
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def site(gate: asyncio.Event | None = None) -> AsyncIterator[WebServer]:
    async def say(_: web.Request) -> web.Response:
        return web.Response(text="here\n")

    async def wait(_: web.Request) -> web.Response:
        assert gate is not None
        await gate.wait()
        return web.Response(text="here\n")

    app = web.Application()
    app.router.add_get("/metrics", say)
    app.router.add_get("/slow", wait)
    server = WebServer(app, listen_address="127.0.0.1:0", config_file=None)
    await server.start()
    try:
        yield server
    finally:
        if gate is not None:
            gate.set()
        await server.close()


async def connect(server: WebServer, count: int, start: bytes = b"") -> list[Stream]:
    host, port = server.addresses[0]
    streams = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(start)
        streams.append((reader, writer))
    return streams


async def is_answered(stream: Stream, request: bytes = REQUEST) -> bool:
    reader, writer = stream
    async with asyncio.timeout(PATIENCE):
        writer.write(request)
        try:
            return (await reader.readline()).startswith(b"HTTP/1.1 200")
        except OSError:
            return False


async def has_ended(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        await reader.read()


def close(*streams: Stream) -> None:
    for _, writer in streams:
        writer.transport.abort()


def few(server: WebServer) -> None:
    server._admission.crowd._most = FEW


def open_now(server: WebServer) -> int:
    inner = server._runner.server
    assert inner is not None
    return len(inner.connections)


async def test_those_that_say_nothing_keep_nobody_out() -> None:
    async with site() as server:
        few(server)
        idle = await connect(server, 2 * ACCEPTED_AT_ONCE)
        for _ in range(5):
            (fresh,) = await connect(server, 1)
            assert await is_answered(fresh)
            close(fresh)
        assert open_now(server) <= FEW + ACCEPTED_AT_ONCE
        close(*idle)


@pytest.mark.parametrize("start", [b"GET /metr", b"POST /x HTTP/1.1\r\nHost: a\r\nX: "])
async def test_nor_do_those_that_never_come_to_the_end_of_what_they_say(start: bytes) -> None:
    async with site() as server:
        few(server)
        idle = await connect(server, IDLE, start)
        (fresh,) = await connect(server, 1)
        assert await is_answered(fresh)
        close(fresh, *idle)


async def test_one_that_has_asked_before_stays_while_others_never_have() -> None:
    async with site() as server:
        few(server)
        (regular,) = await connect(server, 1)
        assert await is_answered(regular)
        silent = await connect(server, IDLE)
        reader, _ = regular
        await reader.readuntil(b"here\n")
        assert await is_answered(regular)
        close(regular, *silent)


async def test_one_that_is_being_answered_is_never_closed() -> None:
    gate = asyncio.Event()
    async with site(gate) as server:
        few(server)
        (slow,) = await connect(server, 1)
        answer = asyncio.create_task(is_answered(slow, REQUEST.replace(b"metrics", b"slow")))
        await asyncio.sleep(0)
        silent = await connect(server, IDLE)
        gate.set()
        assert await answer
        close(slow, *silent)


async def test_there_is_an_end_to_those_that_are_being_answered_too() -> None:
    gate = asyncio.Event()
    async with site(gate) as server:
        few(server)
        slow = await connect(server, 2 * ACCEPTED_AT_ONCE, REQUEST.replace(b"metrics", b"slow"))

        pending = {asyncio.create_task(has_ended(reader)) for reader, _ in slow}
        async with asyncio.timeout(PATIENCE):
            while len(pending) > ACCEPTED_AT_ONCE + 2 * FEW:
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        close(*slow)


@pytest.mark.parametrize("start", [b"", b"GET /metr", b"GET / HTTP/1.1\r\nHost: a\r\nX: "])
async def test_a_request_head_that_never_ends_is_not_waited_for_for_ever(
    start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webserver, "KEEPALIVE_SECONDS", 0.2)
    async with site() as server:
        ((reader, writer),) = await connect(server, 1, start)
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b""
        writer.close()
