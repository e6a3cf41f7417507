from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from trainwarden_exporter.runtime.repeated_logs import RepetitionFilter
from trainwarden_exporter.webserver import connections
from trainwarden_exporter.webserver.connections import ConnectionTable
from trainwarden_exporter.webserver.listener import Listener
from trainwarden_exporter.webserver.sockets import bind

STORM = 400
SOMAXCONN = Path("/proc/sys/net/core/somaxconn")
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
KEPT_ALIVE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def listening(
    limit: int = connections.MAX_CONNECTIONS,
) -> AsyncIterator[tuple[Listener, tuple[str, int]]]:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(text="here")

    server = web.Server(answer)
    (sock,) = await bind("127.0.0.1:0")
    listener = Listener([sock], ConnectionTable(limit), lambda: server)
    listener.start()
    try:
        yield listener, sock.getsockname()
    finally:
        await listener.close()
        await server.shutdown(1)


async def answer_to(client: socket.socket, request: bytes = REQUEST) -> bytes:
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60):
        await loop.sock_sendall(client, request)
        return await loop.sock_recv(client, 15)


@pytest.mark.parametrize("turns", range(1, 6))
async def test_connections_accepted_just_before_the_listener_closes_are_served(turns: int) -> None:
    async with listening() as (listener, address):
        with ExitStack() as opened:
            waiting = [opened.enter_context(socket.create_connection(address)) for _ in range(3)]
            for _ in range(turns):
                await asyncio.sleep(0)
            accepted = len(listener._table)
            await listener.close()
            for client in waiting[:accepted]:
                assert await answer_to(client) == b"HTTP/1.1 200 OK"


async def test_a_crowded_listener_resets_peers_that_do_not_wait_for_answers() -> None:
    async with listening(limit=4) as (listener, address):
        with ExitStack() as opened:
            for _ in range(2):
                opened.enter_context(socket.create_connection(address))
            async with asyncio.timeout(60):
                while len(listener._table) < 2:  # noqa: ASYNC110 - the table has no event
                    await asyncio.sleep(0.01)
            impatient = opened.enter_context(socket.create_connection(address))
            impatient.sendall(2 * KEPT_ALIVE)
            with pytest.raises(ConnectionResetError):
                await answer_to(impatient, KEPT_ALIVE)
            patient = opened.enter_context(socket.create_connection(address))
            assert await answer_to(patient) == b"HTTP/1.1 200 OK"


async def test_with_free_places_they_get_one_answer() -> None:
    async with listening() as (_, address):
        with socket.create_connection(address) as impatient:
            impatient.sendall(2 * KEPT_ALIVE)
            assert await answer_to(impatient, KEPT_ALIVE) == b"HTTP/1.1 200 OK"


@pytest.mark.skipif(
    not SOMAXCONN.exists() or int(SOMAXCONN.read_text()) < STORM,
    reason="the kernel allows no queue of this length",
)
async def test_a_storm_of_connections_waits_in_the_kernel_while_the_program_is_busy() -> None:
    """A client that finds the queue full tries again only a second later."""
    async with listening() as (_, address):
        with ExitStack() as waiting:
            for _ in range(STORM):
                waiting.enter_context(socket.create_connection(address, timeout=0.5))


async def test_without_a_file_descriptor_one_line_is_logged_and_the_next_connection_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections.log, "filters", [RepetitionFilter()])
    accept, failures = socket.socket.accept, iter(range(5))

    def fail(sock: socket.socket) -> tuple[socket.socket, object]:
        if next(failures, None) is not None:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(sock)

    async with listening() as (_, address):
        monkeypatch.setattr(socket.socket, "accept", fail)
        with caplog.at_level(logging.WARNING):
            client = await asyncio.to_thread(socket.create_connection, address)
            with client:
                assert await answer_to(client) == b"HTTP/1.1 200 OK"
    assert [record.getMessage() for record in caplog.records] == ["connection not accepted"]
    assert caplog.records[0].exc_info is None
