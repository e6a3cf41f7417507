from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from trainwarden_exporter.serving.listening import (
    bind,
    open_listeners,
    parse_listen_address,
    retire,
)

STORM = 400
LONGEST_LINE = Path("/proc/sys/net/core/somaxconn")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:10977", "127.0.0.1", 10977),
        (":10977", None, 10977),
        ("[::1]:10977", "::1", 10977),
        ("localhost:0", "localhost", 0),
    ],
)
def test_listen_addresses_are_read(text: str, host: str | None, port: int) -> None:
    assert parse_listen_address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "10977", "host", "host:", "::1:80", "h:65536", "h:-1"])
def test_anything_else_is_no_listen_address(text: str) -> None:
    with pytest.raises(ValueError, match="not a listen address"):
        parse_listen_address(text)


async def test_an_address_in_use_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=f"cannot listen on {address}: Address") as caught:
            await bind(address)
    assert caught.value.errno == errno.EADDRINUSE


async def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1:0: Cannot assign"):
        await bind("192.0.2.1:0")


async def test_all_interfaces_share_one_port() -> None:
    bound = await bind(":0")
    try:
        hosts = {sock.getsockname()[0] for sock in bound}
        assert "0.0.0.0" in hosts
        assert len(hosts) == len(bound)
        assert len({sock.getsockname()[1] for sock in bound}) == 1
    finally:
        for sock in bound:
            sock.close()


async def test_connections_accepted_just_before_the_listener_is_replaced_are_served() -> None:
    class Greeter(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.write(b"hello")
            transport.close()

    (sock,) = await bind("127.0.0.1:0")
    listeners = await open_listeners([sock], Greeter, None, handshake_seconds=1)
    try:
        for turns in range(5):
            waiting = [socket.create_connection(sock.getsockname()) for _ in range(3)]
            for _ in range(turns):
                await asyncio.sleep(0)
            await retire(listeners)
            listeners = await open_listeners([sock], Greeter, None, handshake_seconds=1)
            for client in waiting:
                with client:
                    client.setblocking(False)
                    async with asyncio.timeout(5):
                        assert await asyncio.get_running_loop().sock_recv(client, 10) == b"hello"
    finally:
        await retire(listeners)
        sock.close()


@pytest.mark.skipif(
    not LONGEST_LINE.exists() or int(LONGEST_LINE.read_text()) < STORM,
    reason="the kernel lets no line be that long",
)
async def test_a_storm_of_connections_waits_in_line_while_we_are_busy() -> None:
    """Who finds no place there is not told, and comes again a second later."""
    (sock,) = await bind("127.0.0.1:0")
    listeners = await open_listeners([sock], asyncio.Protocol, None, handshake_seconds=1)
    try:
        with ExitStack() as waiting:
            for _ in range(STORM):
                waiting.enter_context(socket.create_connection(sock.getsockname(), timeout=0.5))
    finally:
        await retire(listeners)
        sock.close()
