"""Peers that do not read, over real sockets with short times."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from tests.exporter.conftest import Authority

from trainwarden_exporter.webserver import connections
from trainwarden_exporter.webserver.server import WebServer

PATIENCE = 60.0
LARGE = b"x" * (16 << 20)
POST = (
    b"POST /length HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    b"Content-Length: 9\r\n\r\nx"
)
REQUEST = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def serving(config_file: Path | None = None) -> AsyncIterator[WebServer]:
    async def large(_: web.Request) -> web.Response:
        return web.Response(body=LARGE)

    async def length(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    app = web.Application(client_max_size=64 << 20)
    app.router.add_get("/large", large)
    app.router.add_post("/length", length)
    server = WebServer(app, listen_address="127.0.0.1:0", config_file=config_file)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


async def empties(server: WebServer) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(server._connections):  # noqa: ASYNC110 - the table has no event
            await asyncio.sleep(0.01)


async def test_a_connection_is_aborted_when_its_peer_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.2)
    async with serving() as server:
        with socket.create_connection(server.addresses[0]) as peer:
            peer.sendall(REQUEST)
            await empties(server)


async def test_so_is_a_connection_that_the_server_has_closed_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Aiohttp waits forever for such a connection to send its data."""
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.2)
    async with serving() as server:
        with socket.create_connection(server.addresses[0]) as peer:
            peer.sendall(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            await empties(server)


async def test_a_peer_that_reads_slowly_gets_the_whole_answer() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection(*server.addresses[0], limit=4096)
        writer.write(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        async with asyncio.timeout(PATIENCE):
            await reader.readuntil(b"\r\n\r\n")
            received = 0
            while piece := await reader.read(65536):
                received += len(piece)
        assert received == len(LARGE)
        writer.close()


async def test_a_large_body_arrives_whole() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection(*server.addresses[0])
        head = f"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(LARGE)}\r\n\r\n"
        writer.write(head.encode() + LARGE)
        async with asyncio.timeout(PATIENCE):
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.read(8) == str(len(LARGE)).encode()
        writer.close()


async def test_silent_tls_handshakes_make_room_for_a_client(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    pair = authority.issue_server("server")
    file = tmp_path / "web.yml"
    file.write_text(
        f"tls_server_config: {{cert_file: {pair.cert_file}, key_file: {pair.key_file}}}"
    )
    async with serving(file) as server:
        server._connections.limit = 10
        silent = [await asyncio.open_connection(*server.addresses[0]) for _ in range(50)]
        context = ssl.create_default_context(cadata=authority.cert)
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(
                *server.addresses[0], ssl=context, server_hostname="localhost"
            )
            writer.write(REQUEST)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert len(server._connections) <= 11
        for _, other in [*silent, (reader, writer)]:
            other.transport.abort()


async def test_requests_that_are_lost_with_their_connection_log_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:
        for _ in range(3):
            with socket.create_connection(server.addresses[0]) as peer:
                peer.sendall(POST)
                await asyncio.to_thread(peer.recv, 100)  # its handler reads now
            await empties(server)
    (line,) = caplog.records
    assert line.message == "a request was lost with its connection"
    assert line.exc_info is None
