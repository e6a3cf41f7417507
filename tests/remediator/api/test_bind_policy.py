"""Which requests are accepted, over real sockets and real TLS, and the answers to the others."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.exporter.conftest import Authority
from tests.remediator.live_host import Box
from tests.remediator.samples import TOKEN, delivery, sent_alert

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.webserver.server import WebServer
from trainwarden_exporter.webserver.sockets import is_loopback
from trainwarden_remediator.api import server, webhook
from trainwarden_remediator.api.bind_policy import check_exposure
from trainwarden_remediator.api.server import build_app
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.config.schema import Config

BEARER = {"Authorization": f"Bearer {TOKEN}"}
PASSWORD = "a-password-that-nobody-guesses"


class Site:
    """A remediator that listens, and one who asks it."""

    def __init__(self, remediator: Remediator, server: WebServer) -> None:
        self.remediator = remediator
        self.server = server

    async def post(
        self,
        headers: Mapping[str, str] = {},
        *,
        tls: ssl.SSLContext | None = None,
        body: bytes = b"",
    ) -> tuple[int, str]:
        host, port = self.server.addresses[0]
        scheme = "http" if tls is None else "https"
        async with aiohttp.ClientSession() as session:
            answer = await session.post(
                f"{scheme}://{host}:{port}/webhook",
                data=body or delivery(),
                headers=headers,
                ssl=True if tls is None else tls,
                allow_redirects=False,
            )
            return answer.status, await answer.text()


@asynccontextmanager
async def serving(box: Box, web_config: str = "") -> AsyncIterator[Site]:
    file = box.folder / "web.yml"
    file.write_text(web_config)
    remediator = Remediator(box.config_file)
    server = WebServer(
        build_app(remediator),
        listen_address="127.0.0.1:0",
        config_file=file,
        own_credential_paths=lambda: frozenset({"/webhook"}),
    )
    async with remediator:
        await server.start()
        remediator.readiness.ready = True
        try:
            yield Site(remediator, server)
        finally:
            await server.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


def demanding(authority: Authority, policy: str = "RequireAndVerifyClientCert") -> str:
    pair = authority.issue_server("server")
    settings = {
        "cert_file": str(pair.cert_file),
        "key_file": str(pair.key_file),
        "client_auth_type": policy,
        "client_ca_file": str(authority.cert_file),
    }
    return json.dumps({"tls_server_config": settings})


def client(authority: Authority, *, certified: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.cert)
    if certified:
        pair = authority.issue("client")
        context.load_cert_chain(pair.cert_file, pair.key_file)
    return context


CERTIFICATE, BOTH = frozenset({"certificate"}), frozenset({"certificate", "token"})
NOTHING, TOKEN_ALONE = frozenset[str](), frozenset({"token"})

# [what the configuration says, what is shown, answer]
TABLE: list[tuple[dict[str, Any], frozenset[str], int]] = [
    ({"token_file": None, "client_certificates": True}, CERTIFICATE, 200),
    ({"token_file": None, "client_certificates": True}, NOTHING, 403),
    ({"token_file": None, "client_certificates": True}, TOKEN_ALONE, 403),
    ({"token_file": None, "insecure": True}, NOTHING, 403),
    ({"token_file": None, "insecure": True}, CERTIFICATE, 200),
    ({}, CERTIFICATE, 401),
    ({}, TOKEN_ALONE, 403),
    ({}, BOTH, 200),
]


@pytest.mark.parametrize(("settings", "shown", "status"), TABLE)
async def test_a_demanded_client_certificate_is_needed_and_counts(
    box: Box, authority: Authority, settings: dict[str, Any], shown: frozenset[str], status: int
) -> None:
    box.configure(**settings)
    async with serving(box, demanding(authority)) as site:
        tls = client(authority, certified="certificate" in shown)
        headers = BEARER if "token" in shown else {}
        assert (await site.post(headers, tls=tls))[0] == status


async def test_a_certificate_that_is_only_taken_when_given_does_not_count(
    box: Box, authority: Authority
) -> None:
    box.configure(token_file=None, client_certificates=True)
    async with serving(box, demanding(authority, "VerifyClientCertIfGiven")) as site:
        assert (await site.post(tls=client(authority, certified=True)))[0] == 401


async def test_in_pull_mode_no_webhook_is_accepted(box: Box) -> None:
    pull = {"url": box.url, "pull": {"match": ['instance="node1"']}}
    box.configure(token_file=None, alertmanager=pull)
    async with serving(box) as site:
        assert (await site.post())[0] == 401
        assert (await site.post(BEARER))[0] == 401


@pytest.mark.parametrize(
    ("address", "settings", "refused"),
    [
        ("0.0.0.0:0", {"alertmanager": {"pull": {"match": ['a="b"']}}}, "token_file"),
        ("[::]:0", {"alertmanager": {"pull": {"match": ['a="b"']}}}, "token_file"),
        (":0", {"alertmanager": {"pull": {"match": ['a="b"']}}}, "token_file"),
        ("127.0.0.1:0", {"alertmanager": {"pull": {"match": ['a="b"']}}}, ""),
        ("[::1]:0", {"alertmanager": {"pull": {"match": ['a="b"']}}}, ""),
        ("localhost:0", {"alertmanager": {"pull": {"match": ['a="b"']}}}, ""),
        ("0.0.0.0:0", {"token_file": "token"}, ""),
        ("0.0.0.0:0", {"insecure": True}, ""),
        ("127.0.0.1:0", {"client_certificates": True}, "client_certificates"),
    ],
)
def test_it_does_not_listen_where_nobody_is_asked_who_they_are(
    tmp_path: Path, address: str, settings: dict[str, Any], refused: str
) -> None:
    config = Config.model_validate(settings, context={"folder": tmp_path})
    about = {"listen_address": address, "web_config_file": None}
    if not refused:
        check_exposure(config, tmp_path / "remediator.yml", **about)  # type: ignore[arg-type]
        return
    with pytest.raises(ConfigError, match=refused):
        check_exposure(config, tmp_path / "remediator.yml", **about)  # type: ignore[arg-type]


def test_users_or_a_demanded_certificate_are_enough(tmp_path: Path, authority: Authority) -> None:
    settings = {"alertmanager": {"pull": {"match": ['a="b"']}}}
    config = Config.model_validate(settings, context={"folder": tmp_path})
    file = tmp_path / "web.yml"
    file.write_text(demanding(authority))
    check_exposure(config, tmp_path / "remediator.yml", listen_address=":0", web_config_file=file)


def test_a_name_is_no_loopback_but_localhost() -> None:
    assert not is_loopback("box.example.org:1")
    assert is_loopback("127.8.8.8:1")


@pytest.mark.parametrize(("over", "status"), [(0, 200), (1, 413)])
async def test_the_limit_of_a_body_is_exact(
    box: Box, monkeypatch: pytest.MonkeyPatch, over: int, status: int
) -> None:
    limit = 20_000
    monkeypatch.setattr(server, "MAX_BODY_BYTES", limit)
    padding = limit + over - len(delivery(sent_alert(annotations={"x": ""})))
    body = delivery(sent_alert(annotations={"x": "x" * padding}))
    assert len(body) == limit + over
    async with serving(box) as site:
        assert (await site.post(BEARER, body=body))[0] == status


async def test_a_body_that_never_ends_is_not_waited_for_for_ever(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "BODY_TIMEOUT_SECONDS", 0.2)
    async with serving(box) as site:
        reader, writer = await asyncio.open_connection(*site.server.addresses[0])
        head = "POST /webhook HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
        writer.write(f"{head}Authorization: Bearer {TOKEN}\r\n\r\n{{".encode())
        async with asyncio.timeout(60):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 ")
        writer.close()


async def test_a_thousand_idle_connections_do_not_keep_the_webhook_out(box: Box) -> None:
    async with serving(box) as site:
        host, port = site.server.addresses[0]
        idle = [await asyncio.open_connection(host, port) for _ in range(1000)]
        async with asyncio.timeout(60):
            assert (await site.post(BEARER))[0] == 200
        for _, writer in idle:
            writer.transport.abort()


async def test_no_secret_is_in_a_log_or_an_answer(
    box: Box, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (box.folder / "secret").write_text(PASSWORD)
    endpoint = {"url": box.url, "token_file": str(box.folder / "secret")}
    box.configure(alertmanager=endpoint, exporter={**endpoint, "config": "exporter.yml"})
    message = []
    async with serving(box) as site:
        for header in (f"Bearer {TOKEN}x", f"Basic {TOKEN}", f"Bearer {TOKEN}"):
            bodies = (b"", b"{", delivery(box.alert()))
            message += [
                str(await site.post({"Authorization": header}, body=body)) for body in bodies
            ]
        host, port = site.server.addresses[0]
        async with aiohttp.ClientSession() as session:
            for path in ("/", "/metrics", "/nowhere"):
                answer = await session.get(f"http://{host}:{port}{path}")
                message.append(await answer.text())
        box.blind = True
        observer = site.remediator._observer()
        for question in (observer.observe, observer.alerts):
            with pytest.raises(Exception, match="answered 503") as error:
                await question()
            message.append(str(error.value))
        (box.folder / "secret").write_bytes(PASSWORD.encode() + b"\nsecond line\x00")
        with pytest.raises(Exception, match="not one line") as error:
            await observer.observe()
        message.append(str(error.value))
        await site.remediator.reloader.reload()
    reported = "\n".join([*message, caplog.text, *(str(vars(record)) for record in caplog.records)])
    assert len(caplog.records) > 0
    assert TOKEN not in reported
    assert PASSWORD not in reported
