"""Over real sockets: what a server can do to whoever asks it."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fake_engines import FakeVllm
from fake_serving import FakeServer
from trainwarden_exporter.inference.asking import HttpAsker
from trainwarden_exporter.inference.config import TlsConfig
from trainwarden_exporter.inference.keys import Keyring, no_key, parse_key
from trainwarden_exporter.inference.questions import Answer, Contact, Question

if TYPE_CHECKING:
    from tests.exporter.conftest import Authority

QUESTION = Question("life", "/health")


async def ask(
    url: str,
    question: Question = QUESTION,
    *,
    timeout: float = 5.0,  # noqa: ASYNC109 - it is a setting of the asker
    key: Keyring = no_key,
    context: ssl.SSLContext | None = None,
) -> Answer:
    asker = HttpAsker(timeout, key, context)
    async with asker.visit() as one:
        return await one(url, question)


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[str]:
    """A server that does as `handler` pleases; its URL."""

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
    """Sends `chunks` to whoever has asked something, and closes."""

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
    """A port that is bound and not listened on, as of a server that starts; its URL."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{one.getsockname()[1]}"


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@contextmanager
def silent() -> Iterator[str]:
    """A port at which the kernel accepts, and nobody says anything; its URL."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen(64)
        yield f"http://127.0.0.1:{one.getsockname()[1]}"


async def test_a_good_answer_is_read() -> None:
    fake = FakeServer(FakeVllm())
    await fake.listen()
    answer = await ask(f"{fake.url}/v1/models")
    assert answer.good
    assert answer.field("object") == "list"
    assert answer.seconds > 0
    missing = await ask(f"{fake.url}/nowhere")
    assert missing.unknown_here
    await fake.close()


async def test_a_bound_port_that_nobody_listens_on_refuses() -> None:
    with bound() as url:
        assert (await ask(url)).contact is Contact.REFUSED
        assert (await ask(url.replace("127.0.0.1", "localhost"))).contact is Contact.REFUSED


async def test_a_port_that_accepts_and_says_nothing_is_silent() -> None:
    with silent() as url:
        answer = await ask(url, timeout=0.05, question=Question("life", "", patience=None))
    assert answer.contact is Contact.SILENT
    assert answer.detail == "no answer within 0.05 s"


async def test_a_name_that_does_not_exist_is_unreachable() -> None:
    assert (await ask("http://no-such-host.invalid:8000")).contact is Contact.UNREACHABLE


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x00\xff",
    ],
)
async def test_what_is_no_http_is_a_broken_answer(said: bytes) -> None:
    async with server(saying(said)) as url:
        assert (await ask(url)).contact is Contact.BROKEN


async def test_a_body_that_never_ends_is_cut_at_its_limit() -> None:
    async def forever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with server(forever) as url:
        answer = await ask(url, Question("metrics", "/metrics", limit=300_000))
    assert answer.contact is Contact.BROKEN
    assert "longer than 300000 bytes" in answer.detail
    assert answer.body == b""


async def test_a_body_that_drips_is_waited_for_no_longer_than_its_time() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with server(drip) as url:
        answer = await ask(url, Question("metrics", "/metrics", patience=0.1))
    assert answer.contact is Contact.SILENT


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
async def test_a_compressed_body_is_not_unpacked(encoding: str) -> None:
    bomb = gzip.compress(bytes(50 << 20)) if encoding == "gzip" else zlib.compress(bytes(50 << 20))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(bomb)}\r\n\r\n"
    seen: list[bytes] = []
    async with server(saying(head.encode() + bomb, seen=seen)) as url:
        answer = await ask(url)
    assert answer.contact is Contact.BROKEN
    assert answer.body == b""
    assert b"accept-encoding: identity" in seen[0].lower()


async def test_redirects_are_not_followed() -> None:
    seen: list[bytes] = []
    async with server(saying(b"HTTP/1.1 200 OK\r\n\r\n", seen=seen)) as elsewhere:
        to = f"HTTP/1.1 307 Go\r\nLocation: {elsewhere}/\r\nContent-Length: 0\r\n\r\n".encode()
        async with server(saying(to)) as url:
            answer = await ask(url, key=lambda: parse_key("secret"))
    assert answer.status == 307
    assert not answer.good
    assert not seen, "nor is the key sent there"


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with server(saying(b"HTTP/1.1 204 No Content\r\n\r\n")) as url:
        assert (await ask(url)).status == 204


async def test_the_key_is_sent_and_not_shown() -> None:
    seen: list[bytes] = []
    key = parse_key(" secret-key \n")
    async with server(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", seen=seen)) as url:
        await ask(url, key=lambda: key)
    assert b"Authorization: Bearer secret-key\r\n" in seen[0]
    assert "secret" not in f"{key!r} {key!s}"


async def test_a_visit_uses_one_connection_and_the_next_one_another() -> None:
    connections = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with server(count) as url:
        asker = HttpAsker(5.0)
        for visits in (1, 2):
            async with asker.visit() as one:
                for _ in range(3):
                    assert (await one(url, QUESTION)).good
            assert connections == visits


async def test_a_server_that_dies_with_connections_open_is_seen_to_be_dead() -> None:
    fake = FakeServer(FakeVllm())
    await fake.listen()
    asker = HttpAsker(5.0)
    async with asker.visit() as one:
        assert (await one(f"{fake.url}/health", QUESTION)).good
    await fake.close()
    async with asker.visit() as one:
        assert (await one(f"{fake.url}/health", QUESTION)).contact is Contact.REFUSED


async def test_a_server_that_listens_no_more_is_dead_though_it_still_serves_old_connections() -> (
    None
):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}"
    asker = HttpAsker(5.0)
    async with asker.visit() as one:
        assert (await one(url, QUESTION)).good
        running.close()
        async with asker.visit() as another:
            assert (await another(url, QUESTION)).contact is Contact.REFUSED
        assert (await one(url, QUESTION)).good, "the old one is served still"


async def test_a_question_given_up_closes_its_connection() -> None:
    gone = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.read() == b""
        gone.set()

    async with server(wait) as url:
        await ask(url, Question("completion", "", patience=0.05))
        await asyncio.wait_for(gone.wait(), 5)


async def test_a_post_carries_json_and_its_headers() -> None:
    got: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        got.extend((head, await reader.readexactly(12)))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with server(take) as url:
        question = Question("completion", "", "POST", {"model": 1}, {"X-Data-Parallel-Rank": "2"})
        assert (await ask(url, question)).good
    assert got[0].startswith(b"POST / HTTP/1.1\r\n")
    assert b"X-Data-Parallel-Rank: 2\r\n" in got[0]
    assert got[1] == b'{"model": 1}'


async def test_many_visits_leave_no_socket_and_no_task_behind() -> None:
    fake = FakeServer(FakeVllm())
    await fake.listen()
    with bound() as refusing, silent() as hanging:
        asker = HttpAsker(0.02)

        async def visit(url: str) -> None:
            async with asker.visit() as one:
                await one(url, Question("life", "", patience=None))

        async def all_of_them() -> None:
            for _ in range(20):
                await asyncio.gather(*map(visit, (f"{fake.url}/health", refusing, hanging)))

        await all_of_them()
        await asyncio.sleep(0.05)
        files, tasks = open_files(), len(asyncio.all_tasks())
        await all_of_them()
        await asyncio.sleep(0.05)
        assert open_files() <= files
        assert len(asyncio.all_tasks()) <= tasks
    await fake.close()


async def test_a_certificate_of_a_stranger_makes_a_server_unreachable(secured: str) -> None:
    answer = await ask(secured)
    assert answer.contact is Contact.UNREACHABLE
    assert answer.detail.startswith("TLS: ")


async def test_a_certificate_of_the_configured_authority_is_good(
    secured: str, authority: Authority
) -> None:
    context = TlsConfig(ca_file=authority.cert_file).context()
    assert (await ask(secured, context=context)).good


async def test_an_authority_of_the_system_is_good_without_being_configured(
    secured: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusting_nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", trusting_nobody)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert_file))
    assert (await ask(secured)).good
    assert (await ask(secured.replace("https", "HTTPS"))).good
    assert (await ask(secured, context=TlsConfig().context())).good


def test_servers_without_an_authority_of_their_own_share_a_context(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = TlsConfig().context()
    assert TlsConfig().context() is context
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname

    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert_file))
    assert TlsConfig().context() is not context  # the system's have changed


async def test_any_certificate_will_do_where_that_is_wished(secured: str) -> None:
    assert (await ask(secured, context=TlsConfig(insecure=True).context())).good
