"""The HTTP client on real sockets, with well-behaved and hostile servers."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fake_engines import FakeVllm
from fake_serving import FakeServer
from trainwarden_exporter.inference.api_keys import KeySource, no_key, parse_key
from trainwarden_exporter.inference.config import TlsConfig
from trainwarden_exporter.inference.http_client import HttpClient
from trainwarden_exporter.inference.http_messages import HttpOutcome, HttpRequest, HttpResponse

if TYPE_CHECKING:
    from tests.exporter.conftest import Authority

QUESTION = HttpRequest("liveness", "/health")


async def send(
    url: str,
    question: HttpRequest = QUESTION,
    *,
    timeout: float = 5.0,  # noqa: ASYNC109 - a setting of the client
    key: KeySource = no_key,
    context: ssl.SSLContext | None = None,
) -> HttpResponse:
    client = HttpClient(timeout, key, context)
    async with client.connect() as one:
        return await one(url, question)


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[str]:
    """Runs a server with `handler`; yields its URL."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    running = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        port = running.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        running.close()
        await running.wait_closed()


def saying(*chunks: bytes, seen: list[bytes] | None = None) -> Handler:
    """Sends `chunks` after a request, and closes."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if seen is not None:
            seen.append(head)
        for chunk in chunks:
            writer.write(chunk)
            await writer.drain()

    return handler


@contextmanager
def bound() -> Iterator[str]:
    """Yields the URL of a bound port without listener, as of a starting server."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{one.getsockname()[1]}"


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@contextmanager
def silent() -> Iterator[str]:
    """Yields the URL of a port where only the kernel accepts connections."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen(64)
        yield f"http://127.0.0.1:{one.getsockname()[1]}"


async def test_a_valid_response_is_read() -> None:
    fake = FakeServer(FakeVllm())
    await fake.listen()
    answer = await send(f"{fake.url}/v1/models")
    assert answer.succeeded
    assert answer.field("object") == "list"
    assert answer.seconds > 0
    missing = await send(f"{fake.url}/nowhere")
    assert missing.is_unknown_endpoint
    await fake.close()


async def test_a_bound_port_without_listener_refuses() -> None:
    with bound() as url:
        assert (await send(url)).outcome is HttpOutcome.REFUSED
        assert (await send(url.replace("127.0.0.1", "localhost"))).outcome is HttpOutcome.REFUSED


async def test_a_port_that_accepts_without_an_answer_is_silent() -> None:
    with silent() as url:
        answer = await send(url, timeout=0.05, question=HttpRequest("liveness", "", timeout=None))
    assert answer.outcome is HttpOutcome.SILENT
    assert answer.detail == "no answer within 0.05 s"


async def test_a_name_that_does_not_exist_is_unreachable() -> None:
    assert (await send("http://no-such-host.invalid:8000")).outcome is HttpOutcome.UNREACHABLE


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x00\xff",
    ],
)
async def test_a_response_that_is_not_http_is_broken(response: bytes) -> None:
    async with server(saying(response)) as url:
        assert (await send(url)).outcome is HttpOutcome.BROKEN


async def test_an_endless_body_is_cut_at_its_limit() -> None:
    async def forever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with server(forever) as url:
        answer = await send(url, HttpRequest("metrics", "/metrics", limit=300_000))
    assert answer.outcome is HttpOutcome.BROKEN
    assert "longer than 300000 bytes" in answer.detail
    assert answer.body == b""


async def test_a_slow_body_is_cut_at_the_timeout() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with server(drip) as url:
        answer = await send(url, HttpRequest("metrics", "/metrics", timeout=0.1))
    assert answer.outcome is HttpOutcome.SILENT


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
async def test_a_compressed_body_is_not_unpacked(encoding: str) -> None:
    bomb = gzip.compress(bytes(50 << 20)) if encoding == "gzip" else zlib.compress(bytes(50 << 20))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(bomb)}\r\n\r\n"
    seen: list[bytes] = []
    async with server(saying(head.encode() + bomb, seen=seen)) as url:
        answer = await send(url)
    assert answer.outcome is HttpOutcome.BROKEN
    assert answer.body == b""
    assert b"accept-encoding: identity" in seen[0].lower()


async def test_redirects_are_not_followed() -> None:
    seen: list[bytes] = []
    async with server(saying(b"HTTP/1.1 200 OK\r\n\r\n", seen=seen)) as elsewhere:
        to = f"HTTP/1.1 307 Go\r\nLocation: {elsewhere}/\r\nContent-Length: 0\r\n\r\n".encode()
        async with server(saying(to)) as url:
            answer = await send(url, key=lambda: parse_key("secret"))
    assert answer.status == 307
    assert not answer.succeeded
    assert not seen, "nor is the key sent there"


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with server(saying(b"HTTP/1.1 204 No Content\r\n\r\n")) as url:
        assert (await send(url)).status == 204


async def test_the_key_is_sent_and_not_shown() -> None:
    seen: list[bytes] = []
    key = parse_key(" secret-key \n")
    async with server(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", seen=seen)) as url:
        await send(url, key=lambda: key)
    assert b"Authorization: Bearer secret-key\r\n" in seen[0]
    assert "secret" not in f"{key!r} {key!s}"


async def test_a_round_uses_one_connection_and_the_next_round_another() -> None:
    connections = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with server(count) as url:
        client = HttpClient(5.0)
        for visits in (1, 2):
            async with client.connect() as one:
                for _ in range(3):
                    assert (await one(url, QUESTION)).succeeded
            assert connections == visits


async def test_a_server_that_dies_with_open_connections_is_refused() -> None:
    fake = FakeServer(FakeVllm())
    await fake.listen()
    client = HttpClient(5.0)
    async with client.connect() as one:
        assert (await one(f"{fake.url}/health", QUESTION)).succeeded
    await fake.close()
    async with client.connect() as one:
        assert (await one(f"{fake.url}/health", QUESTION)).outcome is HttpOutcome.REFUSED


async def test_a_server_that_only_serves_old_connections_is_refused() -> None:
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()
        await writer.wait_closed()
        over.set()

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}"
    client = HttpClient(5.0)
    async with client.connect() as one:
        assert (await one(url, QUESTION)).succeeded
        running.close()
        async with client.connect() as another:
            assert (await another(url, QUESTION)).outcome is HttpOutcome.REFUSED
        assert (await one(url, QUESTION)).succeeded, "the old one is served still"
    await asyncio.wait_for(over.wait(), 60)


async def test_a_cancelled_request_closes_its_connection() -> None:
    gone = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.read() == b""
        gone.set()

    async with server(wait) as url:
        await send(url, HttpRequest("completion", "", timeout=0.05))
        await asyncio.wait_for(gone.wait(), 60)


async def test_a_post_carries_json_and_its_headers() -> None:
    got: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        got.extend((head, await reader.readexactly(12)))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with server(take) as url:
        question = HttpRequest(
            "completion", "", "POST", {"model": 1}, {"X-Data-Parallel-Rank": "2"}
        )
        assert (await send(url, question)).succeeded
    assert got[0].startswith(b"POST / HTTP/1.1\r\n")
    assert b"X-Data-Parallel-Rank: 2\r\n" in got[0]
    assert got[1] == b'{"model": 1}'


async def test_many_rounds_leave_no_socket_and_no_task() -> None:
    fake = FakeServer(FakeVllm())
    await fake.listen()
    with bound() as refusing, silent() as hanging:
        client = HttpClient(0.02)

        async def connect(url: str) -> None:
            async with client.connect() as one:
                await one(url, HttpRequest("liveness", "", timeout=None))

        async def all_of_them() -> None:
            for _ in range(20):
                await asyncio.gather(*map(connect, (f"{fake.url}/health", refusing, hanging)))

        await all_of_them()
        await asyncio.sleep(0.05)
        files, tasks = open_files(), len(asyncio.all_tasks())
        await all_of_them()
        await asyncio.sleep(0.05)
        assert open_files() <= files
        assert len(asyncio.all_tasks()) <= tasks
    await fake.close()


async def test_an_untrusted_certificate_makes_a_server_unreachable(secured: str) -> None:
    answer = await send(secured)
    assert answer.outcome is HttpOutcome.UNREACHABLE
    assert answer.detail.startswith("TLS: ")


async def test_a_certificate_of_the_configured_authority_is_accepted(
    secured: str, authority: Authority
) -> None:
    context = TlsConfig(ca_file=authority.cert_file).context()
    assert (await send(secured, context=context)).succeeded


async def test_an_authority_of_the_system_is_accepted_without_configuration(
    secured: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusting_nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", trusting_nobody)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert_file))
    assert (await send(secured)).succeeded
    assert (await send(secured.replace("https", "HTTPS"))).succeeded
    assert (await send(secured, context=TlsConfig().context())).succeeded


def test_servers_without_a_configured_authority_share_a_context(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = TlsConfig().context()
    assert TlsConfig().context() is context
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname

    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert_file))
    assert TlsConfig().context() is not context  # the system's have changed


async def test_any_certificate_is_accepted_if_insecure(secured: str) -> None:
    assert (await send(secured, context=TlsConfig(insecure=True).context())).succeeded
