from __future__ import annotations

import errno
import socket

import pytest

from trainwarden_exporter.webserver.sockets import bind, is_loopback_name, parse_listen_address


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


@pytest.mark.parametrize(
    ("name", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("LOCALHOST.", True),
        ("grafana.localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
        ("", False),
    ],
)
def test_loopback_names(name: str, *, loopback: bool) -> None:
    assert is_loopback_name(name) is loopback
