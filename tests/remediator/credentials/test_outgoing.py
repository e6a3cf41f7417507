"""What the exporter and Alertmanager are shown, by servers that insist on seeing it."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.exporter.conftest import Authority

from trainwarden_remediator.config.endpoints import Endpoint
from trainwarden_remediator.credentials import outgoing
from trainwarden_remediator.credentials.outgoing import RequestCredentials
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.observation import snapshot
from trainwarden_remediator.observation.snapshot import get

SECRET, OTHER = "the-secret-of-today", "the-secret-of-tomorrow"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


class Shown:
    """What a server has been shown."""

    def __init__(self) -> None:
        self.headers: list[str | None] = []
        self.names: list[str] = []

    async def take(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers.get("Authorization"))
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        if certificate:
            self.names.append(certificate["subject"][0][0][1])
        if request.path == "/elsewhere":
            raise web.HTTPFound("/stolen")
        return web.Response(text="here")


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, Shown]]:
    shown = Shown()
    app = web.Application()
    app.router.add_get("/{any:.*}", shown.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"{'http' if tls is None else 'https'}://localhost:{port}", shown
    finally:
        await runner.cleanup()


def insisting(authority: Authority) -> ssl.SSLContext:
    """Of a server that takes nobody without a certificate of `authority`."""
    pair = authority.issue_server("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.cert_file)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def make_door(url: str, **settings: Any) -> RequestCredentials:
    return RequestCredentials(Endpoint.model_validate({"url": url, **settings}))


def write(path: Path, text: str) -> Path:
    """A file that is another one afterwards, however quickly that goes."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)
    return path


async def test_a_token_is_shown_and_another_once_the_file_changes(tmp_path: Path) -> None:
    file = write(tmp_path / "token", f"{SECRET}\n")
    async with listening() as (url, shown), aiohttp.ClientSession() as session:
        credentials = make_door(url, token_file=str(file))
        assert await get(session, f"{url}/x", credentials) == b"here"
        write(file, OTHER)
        await get(session, f"{url}/x", credentials)
        assert shown.headers == [f"Bearer {SECRET}", f"Bearer {OTHER}"]


async def test_a_user_and_a_password_are_shown(tmp_path: Path) -> None:
    file = write(tmp_path / "password", f"{SECRET}\n")
    async with listening() as (url, shown), aiohttp.ClientSession() as session:
        basic = {"username": "warden", "password_file": str(file)}
        await get(session, url, make_door(url, basic_auth=basic))
        expected = base64.b64encode(f"warden:{SECRET}".encode()).decode()
        assert shown.headers == [f"Basic {expected}"]


async def test_a_certificate_is_shown_to_servers_known_by_the_authority(
    authority: Authority, stranger: Authority
) -> None:
    pair = authority.issue("warden")
    files = {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)}
    async with (
        listening(insisting(authority)) as (url, shown),
        aiohttp.ClientSession() as session,
    ):
        credentials = make_door(url, tls={"ca_file": str(authority.cert_file), **files})
        assert await get(session, url, credentials) == b"here"
        assert shown.names == ["warden"]
        for tls in ({"ca_file": str(stranger.cert_file), **files}, files):
            with pytest.raises(ObservationError, match=r"(?i)certificate"):
                await get(session, url, make_door(url, tls=tls))
        bare = {"ca_file": str(authority.cert_file)}
        with pytest.raises(ObservationError):
            await get(session, url, make_door(url, tls=bare))
        named = {"ca_file": str(authority.cert_file), **files, "server_name": "other.example"}
        with pytest.raises(ObservationError, match=r"other\.example"):
            await get(session, url, make_door(url, tls=named))
        assert shown.names == ["warden"]


async def test_a_certificate_is_read_again_when_it_changes(
    authority: Authority, tmp_path: Path
) -> None:
    old, new = authority.issue("old"), authority.issue("new")
    cert, key = tmp_path / "client.crt", tmp_path / "client.key"
    write(cert, old.cert)
    write(key, old.key)
    files = {"cert_file": str(cert), "key_file": str(key), "ca_file": str(authority.cert_file)}
    async with (
        listening(insisting(authority)) as (url, shown),
        aiohttp.ClientSession() as session,
    ):
        credentials = make_door(url, tls=files)
        await get(session, url, credentials)
        write(cert, new.cert)
        write(key, new.key)
        await get(session, url, credentials)
        assert shown.names == ["old", "new"]


async def test_a_redirect_is_not_followed_with_a_token(tmp_path: Path) -> None:
    file = write(tmp_path / "token", SECRET)
    async with listening() as (url, shown), aiohttp.ClientSession() as session:
        with pytest.raises(ObservationError, match="answered 302"):
            await get(session, f"{url}/elsewhere", make_door(url, token_file=str(file)))
        assert len(shown.headers) == 1


@pytest.mark.parametrize("content", ["", "\n", f"{SECRET}\nX-Evil: 1", f"{SECRET}\x07"])
async def test_an_invalid_secret_is_not_sent_and_not_logged(tmp_path: Path, content: str) -> None:
    file = write(tmp_path / "token", content)
    async with listening() as (url, shown), aiohttp.ClientSession() as session:
        with pytest.raises(ObservationError) as error:
            await get(session, url, make_door(url, token_file=str(file)))
        assert str(file) in str(error.value)
        assert SECRET not in str(error.value)
        assert shown.headers == []


@pytest.mark.parametrize("kind", ["token", "password", "ca", "certificate"])
async def test_a_pipe_in_place_of_a_secret_file_is_refused_at_once(
    tmp_path: Path, kind: str
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    settings: dict[str, dict[str, Any]] = {
        "token": {"token_file": str(pipe)},
        "password": {"basic_auth": {"username": "warden", "password_file": str(pipe)}},
        "ca": {"tls": {"ca_file": str(pipe)}},
        "certificate": {"tls": {"cert_file": str(pipe), "key_file": str(pipe)}},
    }
    credentials = make_door("https://localhost:1", **settings[kind])
    async with aiohttp.ClientSession() as session:
        try:
            async with asyncio.timeout(60):
                with pytest.raises(ObservationError, match=r"pipe: not a regular file"):
                    await get(session, "https://localhost:1", credentials)
        finally:  # a thread that waits for a writer would keep the tests from ending
            with suppress(OSError):
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


async def test_a_dead_mount_holds_up_one_thread_and_no_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    reads: list[Path] = []

    def hang(path: Path) -> None:
        reads.append(path)
        answers.wait()

    monkeypatch.setattr(outgoing, "read_stamp", hang)
    monkeypatch.setattr(snapshot, "RESPONSE_TIMEOUT_SECONDS", 0.1)
    file = write(tmp_path / "token", SECRET)
    async with listening() as (url, shown), aiohttp.ClientSession() as session:
        try:
            for _ in range(3):  # a new credential, as after a reload, waits for the same read
                async with asyncio.timeout(60):
                    with pytest.raises(
                        ObservationError, match=r"credentials for .* did not respond"
                    ):
                        await get(session, url, make_door(url, token_file=str(file)))
            assert reads == [file]
        finally:
            answers.set()
        monkeypatch.setattr(snapshot, "RESPONSE_TIMEOUT_SECONDS", 60)
        assert await get(session, url, make_door(url, token_file=str(file))) == b"here"
        assert shown.headers == [f"Bearer {SECRET}"]


async def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    for settings in (
        {"token_file": missing},
        {"basic_auth": {"username": "a", "password_file": missing}},
        {"tls": {"ca_file": missing}},
        {"tls": {"cert_file": missing, "key_file": missing}},
    ):
        with pytest.raises(ObservationError, match="missing"):
            await make_door("https://localhost:1", **settings).options()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"token_file": "a", "basic_auth": {"username": "a", "password_file": "b"}}, "not both"),
        ({"tls": {"ca_file": "a"}}, "https"),
        ({"url": "https://a", "tls": {"cert_file": "a"}}, "must be set together"),
        ({"basic_auth": {"username": "a:b", "password_file": "b"}}, "colon"),
        ({"url": "http://user:pw@a"}, "credentials"),
    ],
)
def test_what_does_not_fit_together_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Endpoint.model_validate({"url": "http://a", **settings})
