from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import bcrypt
import pytest
from aiohttp import web

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.webserver.server import WebServer

if TYPE_CHECKING:
    from tests.exporter.conftest import Authority, Pair

PATIENCE = 60.0
ALICE = bcrypt.hashpw(b"wonderland", bcrypt.gensalt(4)).decode()
BOB = bcrypt.hashpw(b"builder", bcrypt.gensalt(4)).decode()


def build_app() -> web.Application:
    async def say(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.path}\n")

    async def fail(_: web.Request) -> web.Response:
        raise RuntimeError("broken handler")

    async def forbid(_: web.Request) -> web.Response:
        raise web.HTTPConflict(text="conflict")

    app = web.Application()
    app.router.add_get("/metrics", say)
    app.router.add_get("/-/healthy", say)
    app.router.add_get("/-/ready", say)
    app.router.add_get("/fail", fail)
    app.router.add_get("/conflict", forbid)
    app.router.add_get("/{name:-[^/]*}", say)
    return app


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: str


class Connection:
    """One connection that is kept, with the few words of HTTP these tests need."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def get(self, path: str, *, login: str = "", method: str = "GET") -> Answer:
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
        if login:
            lines.append("Authorization: Basic " + base64.b64encode(login.encode()).decode())
        async with asyncio.timeout(PATIENCE):
            self._writer.write("\r\n".join([*lines, "", ""]).encode())
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().splitlines()
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            length = 0 if method == "HEAD" else int(headers["content-length"])
            body = await self._reader.readexactly(length)
        return Answer(int(head[0].split()[1]), headers, body.decode())

    async def has_ended(self) -> bool:
        async with asyncio.timeout(PATIENCE):
            return await self._reader.read() == b""

    @property
    def server_serial(self) -> int:
        certificate = self._writer.get_extra_info("peercert")
        return int(certificate["serialNumber"], 16)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Site:
    """A web server under test, its web config file and connections to it."""

    def __init__(self, server: WebServer, file: Path) -> None:
        self.server = server
        self.file = file
        self._connections: list[Connection] = []

    async def connect(self, tls: ssl.SSLContext | None = None) -> Connection:
        host, port = self.server.addresses[0]
        name = "localhost" if tls is not None else None
        connection = Connection(
            *await asyncio.open_connection(host, port, ssl=tls, server_hostname=name)
        )
        self._connections.append(connection)
        return connection

    async def get(
        self, path: str, *, login: str = "", tls: ssl.SSLContext | None = None, method: str = "GET"
    ) -> Answer:
        return await (await self.connect(tls)).get(path, login=login, method=method)

    async def edit(self, text: str) -> None:
        """Change the file and let the watcher's next two looks find it."""
        self.file.write_text(text)
        await self.look()

    def replace(self, name: str, content: str) -> None:
        """Change a file that the web config names."""
        (self.file.parent / name).write_text(content)

    async def look(self) -> None:
        await self.server.check_files()
        await self.server.check_files()

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
        await self.server.close()


Open = Callable[[str], Awaitable[Site]]


@pytest.fixture
async def open_site(tmp_path: Path) -> AsyncIterator[Open]:
    """Starts a server with the given text as its web config file."""
    sites: list[Site] = []

    async def start(text: str) -> Site:
        file = tmp_path / "web.yml"
        file.write_text(text)
        server = WebServer(build_app(), listen_address="127.0.0.1:0", config_file=file)
        sites.append(Site(server, file))
        await server.start()
        return sites[-1]

    yield start
    for site in sites:
        await site.close()


def tls_text(pair: Pair, *more: str) -> str:
    lines = (f"cert_file: {pair.cert_file}", f"key_file: {pair.key_file}", *more)
    return "tls_server_config:\n" + "".join(f"  {line}\n" for line in lines)


def client_text(pair: Pair, authority: Authority, policy: str, *more: str) -> str:
    return tls_text(
        pair, f"client_auth_type: {policy}", f"client_ca_file: {authority.cert_file}", *more
    )


def users_text(**users: str) -> str:
    return "basic_auth_users:\n" + "".join(f"  {name}: {hash_}\n" for name, hash_ in users.items())


@pytest.fixture
def trust(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.cert)


def with_certificate(authority: Authority, pair: Pair) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.cert)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    return context


@pytest.fixture
def own_tls(tmp_path: Path, server_pair: Pair, authority: Authority) -> str:
    """A web config with files of its own, beside it: own.crt, own.key and (unused) own.pem."""
    (tmp_path / "own.crt").write_text(server_pair.cert)
    (tmp_path / "own.key").write_text(server_pair.key)
    (tmp_path / "own.pem").write_text(authority.cert)
    return "tls_server_config:\n  cert_file: own.crt\n  key_file: own.key\n"


class TestListening:
    async def test_without_a_file_it_speaks_plain_http_to_everybody(self) -> None:
        server = WebServer(build_app(), listen_address="127.0.0.1:0", config_file=None)
        site = Site(server, Path())
        await server.start()
        try:
            assert (await site.get("/metrics")).body == "/metrics\n"
            assert server.last_reload_successful is None
            await server.reload()
            ((host, port),) = server.addresses
            assert host == "127.0.0.1"
            assert port > 0
        finally:
            await site.close()
        assert server.addresses == ()

    async def test_an_address_in_use_is_an_error_and_leaves_nothing_open(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            server = WebServer(build_app(), listen_address=address, config_file=None)
            with pytest.raises(OSError, match=f"cannot listen on {address}: Address already"):
                await server.start()
        assert server.addresses == ()

    def test_a_bad_address_is_found_before_it_starts(self) -> None:
        with pytest.raises(ValueError, match="not a listen address"):
            WebServer(build_app(), listen_address="10977", config_file=None)

    async def test_it_listens_on_ipv6(self) -> None:
        try:
            with socket.create_server(("::1", 0), family=socket.AF_INET6):
                pass
        except OSError as error:
            pytest.skip(f"no IPv6 on this machine: {error}")
        server = WebServer(build_app(), listen_address="[::1]:0", config_file=None)
        site = Site(server, Path())
        await server.start()
        try:
            assert server.addresses[0][0] == "::1"
            assert (await site.get("/metrics")).status == 200
        finally:
            await site.close()

    async def test_a_broken_file_at_start_is_an_error_and_leaves_nothing_open(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "web.yml").write_text("basic_auth_users: {john: doe}")
        server = WebServer(
            build_app(), listen_address="127.0.0.1:0", config_file=tmp_path / "web.yml"
        )
        with pytest.raises(ConfigError, match="not a bcrypt hash"):
            await server.start()
        assert server.addresses == ()
        assert server.last_reload_successful is False

    async def test_an_app_that_cannot_start_leaves_nothing_open(self) -> None:
        async def refuse(_: web.Application) -> None:
            raise RuntimeError("no")

        app = build_app()
        app.on_startup.append(refuse)
        server = WebServer(app, listen_address="127.0.0.1:0", config_file=None)
        with pytest.raises(RuntimeError, match="no"):
            await server.start()
        assert server.addresses == ()

    async def test_an_idle_connection_does_not_delay_closing(
        self, open_site: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("trainwarden_exporter.webserver.server.DRAIN_SECONDS", 2 * PATIENCE)
        site = await open_site("")
        idle = await site.connect()
        assert (await idle.get("/metrics")).status == 200
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(site.server.close(), site.server.close())
        assert await idle.has_ended()
        assert "web config watcher" not in {task.get_name() for task in asyncio.all_tasks()}

    async def test_a_request_in_progress_is_answered_before_closing(self) -> None:
        asked, may_answer = asyncio.Event(), asyncio.Event()

        async def answer(_: web.Request) -> web.Response:
            asked.set()
            await may_answer.wait()
            return web.Response(text="late")

        app = web.Application()
        app.router.add_get("/slow", answer)
        server = WebServer(app, listen_address="127.0.0.1:0", config_file=None)
        site = Site(server, Path())
        await server.start()
        request = asyncio.create_task(site.get("/slow"))
        await asked.wait()
        closing = asyncio.create_task(server.close())
        await asyncio.sleep(0)
        may_answer.set()
        assert (await request).body == "late"
        await closing
        await site.close()

    async def test_a_request_that_never_ends_delays_closing_for_a_bounded_time(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("trainwarden_exporter.webserver.server.DRAIN_SECONDS", 0.02)
        asked = asyncio.Event()

        async def hang(_: web.Request) -> web.Response:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        app = web.Application()
        app.router.add_get("/hang", hang)
        server = WebServer(app, listen_address="127.0.0.1:0", config_file=None)
        site = Site(server, Path())
        await server.start()
        connection = await site.connect()
        request = asyncio.create_task(connection.get("/hang"))
        await asked.wait()
        async with asyncio.timeout(PATIENCE):
            await server.close()
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await request
        await site.close()

    async def test_the_app_is_cleaned_up_once(self) -> None:
        cleaned: list[str] = []

        async def clean(_: web.Application) -> None:
            cleaned.append("app")

        app = build_app()
        app.on_cleanup.append(clean)
        server = WebServer(app, listen_address="127.0.0.1:0", config_file=None)
        await server.start()
        await server.close()
        await server.close()
        assert cleaned == ["app"]


class TestUsers:
    async def test_the_right_password_is_let_in(self, open_site: Open) -> None:
        site = await open_site(users_text(alice=ALICE, bob=BOB))
        assert (await site.get("/metrics", login="alice:wonderland")).status == 200
        assert (await site.get("/metrics", login="bob:builder")).status == 200

    @pytest.mark.parametrize(
        "login", ["", "alice:wrong", "eve:wonderland", "alice:" + "w" * 100, "alice"]
    )
    async def test_anybody_else_is_asked_for_a_password(self, open_site: Open, login: str) -> None:
        site = await open_site(users_text(alice=ALICE))
        answer = await site.get("/metrics", login=login)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "basic"
        assert "/metrics" not in answer.body

    async def test_health_paths_are_open_to_everybody(self, open_site: Open) -> None:
        site = await open_site(users_text(alice=ALICE))
        assert (await site.get("/-/healthy")).status == 200
        assert (await site.get("/-/ready")).status == 200
        assert (await site.get("/-/healthy?x=1", method="HEAD")).status == 200

    @pytest.mark.parametrize("path", ["/absent", "/-/healthy/x", "/-/../metrics", "//-/healthy"])
    async def test_no_other_path_is_open_not_even_a_missing_one(
        self, open_site: Open, path: str
    ) -> None:
        site = await open_site(users_text(alice=ALICE))
        assert (await site.get(path)).status == 401

    async def test_another_route_spelled_like_a_health_path_is_not_open(
        self, open_site: Open
    ) -> None:
        site = await open_site(users_text(alice=ALICE))
        answer = await site.get("/-%2Fhealthy", login="alice:wonderland")
        assert (answer.status, answer.body) == (200, "/-/healthy\n")
        assert (await site.get("/-%2Fhealthy")).status == 401

    async def test_users_change_with_the_file_for_the_next_request(self, open_site: Open) -> None:
        site = await open_site(users_text(alice=ALICE))
        kept = await site.connect()
        assert (await kept.get("/metrics", login="alice:wonderland")).status == 200
        await site.edit(users_text(bob=BOB))
        assert (await kept.get("/metrics", login="alice:wonderland")).status == 401
        assert (await kept.get("/metrics", login="bob:builder")).status == 200
        await site.edit("")
        assert (await kept.get("/metrics")).status == 200


class TestHeadersAndLimit:
    async def test_headers_are_on_every_answer(self, open_site: Open) -> None:
        text = "http_server_config: {headers: {X-Frame-Options: deny}}\n" + users_text(alice=ALICE)
        site = await open_site(text)
        asked = {
            "/-/healthy": 200,
            "/metrics": 200,
            "/absent": 404,
            "/conflict": 409,
            "/fail": 500,
        }
        for path, status in asked.items():
            answer = await site.get(path, login="alice:wonderland")
            assert (answer.status, answer.headers["x-frame-options"]) == (status, "deny"), path
        assert (await site.get("/metrics")).headers["x-frame-options"] == "deny"

    async def test_more_requests_than_the_burst_are_rejected_with_retry_after(
        self, open_site: Open
    ) -> None:
        site = await open_site("rate_limit: {interval: 1h, burst: 2}")
        kept = await site.connect()
        assert [(await kept.get("/metrics")).status for _ in range(3)] == [200, 200, 429]
        assert (await kept.get("/-/healthy")).status == 200
        await site.edit("rate_limit: {interval: 1h, burst: 2}\nbasic_auth_users: {}")
        assert (await kept.get("/metrics")).status == 429, "the reload does not refill the limit"
        await site.edit("")
        assert (await kept.get("/metrics")).status == 200


class TestClientCertificates:
    async def test_a_required_certificate_opens(
        self, open_site: Open, server_pair: Pair, authority: Authority, client_pair: Pair
    ) -> None:
        site = await open_site(client_text(server_pair, authority, "RequireAndVerifyClientCert"))
        tls = with_certificate(authority, client_pair)
        assert (await site.get("/metrics", tls=tls)).status == 200

    async def test_without_the_required_certificate_only_health_paths_answer(
        self, open_site: Open, server_pair: Pair, authority: Authority, trust: ssl.SSLContext
    ) -> None:
        site = await open_site(client_text(server_pair, authority, "RequireAndVerifyClientCert"))
        kept = await site.connect(trust)
        assert (await kept.get("/-/healthy")).status == 200
        answer = await kept.get("/metrics")
        assert (answer.status, answer.body) == (403, "client certificate required\n")
        assert answer.headers["connection"] == "close"
        assert await kept.has_ended()

    @pytest.mark.parametrize("policy", ["RequireAndVerifyClientCert", "VerifyClientCertIfGiven"])
    async def test_a_certificate_of_another_authority_gets_no_handshake(
        self,
        open_site: Open,
        server_pair: Pair,
        authority: Authority,
        stranger: Authority,
        policy: str,
    ) -> None:
        site = await open_site(client_text(server_pair, authority, policy))
        tls = with_certificate(authority, stranger.issue("client"))
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await site.get("/-/healthy", tls=tls)

    async def test_an_optional_certificate_is_not_needed(
        self, open_site: Open, server_pair: Pair, authority: Authority, trust: ssl.SSLContext
    ) -> None:
        site = await open_site(client_text(server_pair, authority, "VerifyClientCertIfGiven"))
        assert (await site.get("/metrics", tls=trust)).status == 200

    @pytest.mark.parametrize(
        "name",
        ["prometheus.example", "::1", "ops@example.org", "spiffe://example.org/prometheus"],
    )
    async def test_a_certificate_with_an_allowed_name_opens(
        self,
        open_site: Open,
        server_pair: Pair,
        authority: Authority,
        client_pair: Pair,
        name: str,
    ) -> None:
        names = f"client_allowed_sans: ['other', '{name}']"
        site = await open_site(
            client_text(server_pair, authority, "RequireAndVerifyClientCert", names)
        )
        tls = with_certificate(authority, client_pair)
        assert (await site.get("/metrics", tls=tls)).status == 200

    async def test_a_certificate_without_an_allowed_name_is_refused(
        self, open_site: Open, server_pair: Pair, authority: Authority, client_pair: Pair
    ) -> None:
        names = "client_allowed_sans: [prometheus]"
        site = await open_site(
            client_text(server_pair, authority, "RequireAndVerifyClientCert", names)
        )
        tls = with_certificate(authority, client_pair)
        answer = await site.get("/metrics", tls=tls)
        assert (answer.status, answer.body) == (403, "client certificate has no allowed name\n")

    async def test_certificate_and_password_are_both_needed_where_both_are_asked(
        self,
        open_site: Open,
        server_pair: Pair,
        authority: Authority,
        client_pair: Pair,
        trust: ssl.SSLContext,
    ) -> None:
        text = client_text(server_pair, authority, "RequireAndVerifyClientCert")
        site = await open_site(text + users_text(alice=ALICE))
        tls = with_certificate(authority, client_pair)
        assert (await site.get("/metrics", tls=tls, login="alice:wonderland")).status == 200
        assert (await site.get("/metrics", tls=tls)).status == 401
        assert (await site.get("/metrics", tls=trust, login="alice:wonderland")).status == 403


class TestRotation:
    async def test_a_new_certificate_is_shown_while_the_old_connection_goes_on(
        self,
        open_site: Open,
        own_tls: str,
        server_pair: Pair,
        renewed_pair: Pair,
        trust: ssl.SSLContext,
    ) -> None:
        site = await open_site(own_tls)
        address = site.server.addresses
        kept = await site.connect(trust)
        assert "connection" not in (await kept.get("/metrics")).headers
        assert kept.server_serial == server_pair.serial

        site.replace("own.crt", renewed_pair.cert)
        site.replace("own.key", renewed_pair.key)
        await site.look()

        fresh = await site.connect(trust)
        assert fresh.server_serial == renewed_pair.serial
        assert (await fresh.get("/metrics")).status == 200
        assert site.server.addresses == address
        answer = await kept.get("/metrics")
        assert answer.status == 200
        assert answer.headers["connection"] == "close", "asked to come back under the new one"
        assert await kept.has_ended()

    async def test_no_connection_is_refused_while_certificates_change(
        self,
        open_site: Open,
        server_pair: Pair,
        renewed_pair: Pair,
        trust: ssl.SSLContext,
    ) -> None:
        site = await open_site(tls_text(server_pair))
        done = asyncio.Event()

        async def ask() -> list[int]:
            statuses = []
            while not done.is_set():
                statuses.append((await site.get("/metrics", tls=trust)).status)
            return statuses

        asking = asyncio.create_task(ask())
        for pair in (renewed_pair, server_pair) * 3:
            site.file.write_text(tls_text(pair))
            await site.server.reload()
            assert (await site.get("/metrics", tls=trust)).status == 200
        done.set()
        assert set(await asking) == {200}

    async def test_half_a_rotation_keeps_the_old_certificate_until_the_key_follows(
        self,
        open_site: Open,
        own_tls: str,
        renewed_pair: Pair,
        trust: ssl.SSLContext,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        site = await open_site(own_tls)

        site.replace("own.crt", renewed_pair.cert)
        await site.look()
        await site.look()
        assert (await site.connect(trust)).server_serial != renewed_pair.serial
        assert site.server.last_reload_successful is False
        complaints = [r for r in caplog.records if r.levelno == logging.ERROR]
        assert len(complaints) == 1, "once for each change of state"
        assert "does not belong to the certificate" in complaints[0].__dict__["error"]

        site.replace("own.key", renewed_pair.key)
        await site.look()
        assert (await site.connect(trust)).server_serial == renewed_pair.serial
        assert site.server.last_reload_successful is True

    async def test_a_new_client_authority_is_in_force_for_new_connections(
        self,
        open_site: Open,
        own_tls: str,
        authority: Authority,
        stranger: Authority,
        client_pair: Pair,
    ) -> None:
        policy = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: own.pem\n"
        site = await open_site(own_tls + policy)
        first = with_certificate(authority, client_pair)
        second = with_certificate(authority, stranger.issue("second"))
        assert (await site.get("/metrics", tls=first)).status == 200
        site.replace("own.pem", stranger.cert)
        await site.look()
        assert (await site.get("/metrics", tls=second)).status == 200
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await site.get("/metrics", tls=first)

    async def test_plain_http_becomes_tls_and_back(
        self, open_site: Open, server_pair: Pair, trust: ssl.SSLContext
    ) -> None:
        site = await open_site("")
        kept = await site.connect()
        assert (await kept.get("/metrics")).status == 200
        await site.edit(tls_text(server_pair))
        assert (await site.get("/metrics", tls=trust)).status == 200
        assert (await kept.get("/metrics")).headers["connection"] == "close"
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await site.get("/metrics")
        await site.edit("")
        assert (await site.get("/metrics")).status == 200

    async def test_a_broken_file_keeps_the_last_good_one_until_it_is_repaired(
        self, open_site: Open, caplog: pytest.LogCaptureFixture
    ) -> None:
        site = await open_site(users_text(alice=ALICE))
        await site.edit("basic_auth_users: [")
        assert site.server.last_reload_successful is False
        assert (await site.get("/metrics")).status == 401
        assert (await site.get("/metrics", login="alice:wonderland")).status == 200
        await site.look()
        assert [r.levelname for r in caplog.records].count("ERROR") == 1
        await site.edit(users_text(bob=BOB))
        assert site.server.last_reload_successful is True
        assert (await site.get("/metrics", login="bob:builder")).status == 200

    async def test_a_file_that_vanished_keeps_the_last_good_one(self, open_site: Open) -> None:
        site = await open_site(users_text(alice=ALICE))
        site.file.unlink()
        await site.look()
        assert site.server.last_reload_successful is False
        assert (await site.get("/metrics")).status == 401

    async def test_a_file_that_is_still_being_written_is_left_alone(self, open_site: Open) -> None:
        site = await open_site(users_text(alice=ALICE))
        site.file.write_text("")
        await site.server.check_files()
        assert (await site.get("/metrics")).status == 401, "a truncated file opens no door"
        site.file.write_text(users_text(alice=ALICE, bob=BOB))
        await site.server.check_files()
        assert (await site.get("/metrics", login="bob:builder")).status == 401
        await site.server.check_files()
        assert (await site.get("/metrics", login="bob:builder")).status == 200

    async def test_a_file_restored_with_its_old_time_is_good_again(self, open_site: Open) -> None:
        good = users_text(alice=ALICE)
        site = await open_site(good)
        before = site.file.stat()
        await site.edit("x" * len(good))
        assert site.server.last_reload_successful is False
        site.file.write_text(good)
        os.utime(site.file, ns=(before.st_atime_ns, before.st_mtime_ns))
        await site.look()
        assert site.server.last_reload_successful is True

    async def test_reload_takes_the_file_up_at_once_or_says_what_is_wrong(
        self, open_site: Open
    ) -> None:
        site = await open_site("")
        site.file.write_text(users_text(alice=ALICE))
        await site.server.reload()
        assert (await site.get("/metrics")).status == 401
        site.file.write_text("basic_auth_users:\n  john: doe\n")
        with pytest.raises(ConfigError, match=r"web\.yml:2: basic_auth_users\.john"):
            await site.server.reload()
        assert site.server.last_reload_successful is False
        assert (await site.get("/metrics", login="alice:wonderland")).status == 200

    async def test_an_expired_certificate_is_served_with_a_warning(
        self, open_site: Open, expired_pair: Pair, caplog: pytest.LogCaptureFixture
    ) -> None:
        site = await open_site(tls_text(expired_pair))
        (record,) = caplog.records
        assert record.getMessage() == "clients will reject the certificate"
        assert record.__dict__["error"] == "certificate has expired"
        blind = ssl.create_default_context()
        blind.check_hostname = False
        blind.verify_mode = ssl.CERT_NONE
        assert (await site.get("/metrics", tls=blind)).status == 200

    async def test_the_watcher_finds_a_change_automatically_and_survives_a_surprise(
        self, monkeypatch: pytest.MonkeyPatch, open_site: Open, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("trainwarden_exporter.webserver.server.CHECK_SECONDS", 0.001)
        site = await open_site("")
        look, surprises = site.server.check_files, [RuntimeError("surprise")]

        async def check_files() -> None:
            if surprises:
                raise surprises.pop()
            await look()

        monkeypatch.setattr(site.server, "check_files", check_files)
        site.file.write_text(users_text(alice=ALICE))
        async with asyncio.timeout(PATIENCE):
            while (await site.get("/metrics")).status != 401:  # noqa: ASYNC110 - the watcher announces nothing
                await asyncio.sleep(0.001)
        assert surprises == []
        assert "surprise" in {record.__dict__.get("error") for record in caplog.records}
        assert site.server.last_reload_successful is True


class TestSlowClients:
    async def test_a_handshake_that_never_comes_is_given_up(
        self, monkeypatch: pytest.MonkeyPatch, open_site: Open, server_pair: Pair
    ) -> None:
        monkeypatch.setattr("trainwarden_exporter.webserver.listener.HANDSHAKE_SECONDS", 0.02)
        site = await open_site(tls_text(server_pair))
        silent = await site.connect()
        assert await silent.has_ended()

    async def test_a_request_that_never_ends_its_head_is_given_up(
        self, monkeypatch: pytest.MonkeyPatch, open_site: Open
    ) -> None:
        monkeypatch.setattr("trainwarden_exporter.webserver.connections.KEEPALIVE_SECONDS", 0.02)
        site = await open_site("")
        slow = await site.connect()
        slow._writer.write(b"GET /metrics HTTP/1.1\r\nHost:")
        assert await slow.has_ended()
