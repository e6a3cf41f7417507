"""Real connections without a request, against connections with one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

from trainwarden_exporter.webserver import connections
from trainwarden_exporter.webserver.server import WebServer

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
    server._connections.limit = FEW


def open_now(server: WebServer) -> int:
    return len(server._connections)


async def test_silent_connections_keep_nobody_out() -> None:
    async with site() as server:
        few(server)
        idle = await connect(server, 2 * ACCEPTED_AT_ONCE)
        for _ in range(5):
            (fresh,) = await connect(server, 1)
            assert await is_answered(fresh)
            close(fresh)
        assert open_now(server) <= FEW + 1
        close(*idle)


@pytest.mark.parametrize("start", [b"GET /metr", b"POST /x HTTP/1.1\r\nHost: a\r\nX: "])
async def test_nor_do_connections_with_endless_requests(start: bytes) -> None:
    async with site() as server:
        few(server)
        idle = await connect(server, IDLE, start)
        (fresh,) = await connect(server, 1)
        assert await is_answered(fresh)
        close(fresh, *idle)


async def test_a_connection_with_an_earlier_request_stays_while_others_never_had_one() -> None:
    async with site() as server:
        few(server)
        (regular,) = await connect(server, 1)
        assert await is_answered(regular)
        silent = await connect(server, IDLE)
        reader, _ = regular
        await reader.readuntil(b"here\n")
        assert await is_answered(regular)
        close(regular, *silent)


async def test_a_connection_that_is_being_answered_is_never_closed() -> None:
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


async def test_while_all_are_being_answered_others_wait_and_are_answered_then() -> None:
    gate = asyncio.Event()
    async with site(gate) as server:
        few(server)
        slow = await connect(server, 2 * FEW, REQUEST.replace(b"metrics", b"slow"))
        answers = [asyncio.create_task(reader.readline()) for reader, _ in slow]
        async with asyncio.timeout(PATIENCE):
            while open_now(server) <= FEW:  # noqa: ASYNC110 - the table has no event
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert open_now(server) == FEW + 1
        gate.set()
        async with asyncio.timeout(PATIENCE):
            assert set(await asyncio.gather(*answers)) == {b"HTTP/1.1 200 OK\r\n"}
        close(*slow)


async def test_a_client_that_does_not_wait_for_its_answer_makes_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(connections._SPARED_SECONDS, connections._State.ANSWERING, 1000.0)
    gate = asyncio.Event()
    async with site(gate) as server:
        few(server)
        request = REQUEST.replace(b"metrics", b"slow")
        impatient = await connect(server, FEW, request)
        async with asyncio.timeout(PATIENCE):
            while open_now(server) < FEW:  # noqa: ASYNC110 - the table has no event
                await asyncio.sleep(0.01)
        for _, writer in impatient:
            writer.write(request)
        for fresh in await connect(server, 2):
            assert await is_answered(fresh)
            close(fresh)
        close(*impatient)


async def test_while_half_of_the_places_are_taken_no_pipelined_request_is_answered() -> None:
    async with site() as server:
        few(server)
        silent = await connect(server, FEW // 2)
        ((reader, writer),) = impatient = await connect(server, 1)
        async with asyncio.timeout(PATIENCE):
            while open_now(server) <= FEW // 2:  # noqa: ASYNC110 - the table has no event
                await asyncio.sleep(0.01)
            writer.write(2 * REQUEST)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        close(*silent, *impatient)


@pytest.mark.parametrize("start", [b"", b"GET /metr", b"GET / HTTP/1.1\r\nHost: a\r\nX: "])
async def test_a_request_head_that_never_ends_is_not_waited_for_for_ever(
    start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "KEEPALIVE_SECONDS", 0.2)
    async with site() as server:
        ((reader, writer),) = await connect(server, 1, start)
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b""
        writer.close()
