"""Each reload repeats the checks of the start."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import bcrypt
import pytest
from tests.hostile.programs import REMEDIATOR, write_config
from tests.remediator.samples import TOKEN

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.webserver.server import WebServer
from trainwarden_remediator.__main__ import build_parser
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.commands.run import build

USERS = f"basic_auth_users: {{alice: {bcrypt.hashpw(b'wonderland', bcrypt.gensalt(4)).decode()}}}"
LOGIN = base64.b64encode(b"alice:wonderland").decode()
ALICE = {"Authorization": f"Basic {LOGIN}"}
BEARER = {"Authorization": f"Bearer {TOKEN}"}
# A server for the second address is built and never started.
LOOPBACK, EVERYWHERE = "127.0.0.1:0", "0.0.0.0:0"


@asynccontextmanager
async def built(folder: Path, listen_address: str) -> AsyncIterator[tuple[Remediator, WebServer]]:
    given = build_parser().parse_args(
        [
            "run",
            f"--config.file={folder / 'remediator.yml'}",
            f"--web.config.file={folder / 'web.yml'}",
            f"--web.listen-address={listen_address}",
        ]
    )
    remediator, server = build(given)
    if listen_address == LOOPBACK:
        remediator.attach_web_file(server)
    async with remediator:
        yield remediator, server


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "remediator.yml"
    write_config(REMEDIATOR, file)
    (tmp_path / "web.yml").write_text("")
    return file


def without_token(config: Path, extra: str = "") -> None:
    """Lets the remediator poll Alertmanager instead of taking webhooks."""
    text = config.read_text().replace("token_file: token\n", "")
    pull = ", pull: {match: ['instance=\"node1\"']}}\ntargets"
    config.write_text(text.replace("}\ntargets", pull) + extra)


async def test_a_reload_that_would_expose_the_program_without_authentication_is_refused(
    config: Path,
) -> None:
    async with built(config.parent, EVERYWHERE) as (remediator, _):
        without_token(config)
        with pytest.raises(ConfigError, match="token_file: required to listen on"):
            await remediator.reloader.reload()
        assert remediator.tokens is not None
        assert not remediator.reloader.successful


async def test_a_web_config_that_would_is_refused_too(config: Path) -> None:
    without_token(config)
    web_file = config.parent / "web.yml"
    web_file.write_text(USERS)
    async with built(config.parent, EVERYWHERE) as (remediator, server):
        web_file.write_text("")
        with pytest.raises(ConfigError, match="without authentication"):
            await server.reload()
        # Nor does a reload of remediator.yml accept it.
        with pytest.raises(ConfigError, match="without authentication"):
            await remediator.reloader.reload()


async def test_users_are_required_where_a_reload_has_removed_the_tokens(config: Path) -> None:
    (config.parent / "web.yml").write_text(USERS)
    async with built(config.parent, LOOPBACK) as (remediator, server):
        await server.start()
        remediator.readiness.ready = True
        host, port = server.addresses[0]
        try:
            async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
                assert (await session.get("/report", headers=BEARER)).status == 200
                without_token(config, "insecure: true\n")
                assert (await session.post("/-/reload", headers=BEARER)).status == 200
                assert (await session.get("/report")).status == 401
                assert (await session.post("/-/hold")).status == 401
                assert (await session.get("/report", headers=ALICE)).status == 200
                assert (await session.post("/-/reload", headers=ALICE)).status == 200
        finally:
            await server.close()


async def test_a_user_may_hold_and_reload_where_there_are_no_tokens(config: Path) -> None:
    without_token(config)
    (config.parent / "web.yml").write_text(USERS)
    async with built(config.parent, LOOPBACK) as (remediator, server):
        await server.start()
        remediator.readiness.ready = True
        host, port = server.addresses[0]
        try:
            async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
                assert (await session.post("/-/hold")).status == 401
                assert (await session.post("/-/hold", headers=ALICE)).status == 200
                assert (await session.post("/-/reload", headers=ALICE)).status == 200
                assert "user alice from" in await (await session.get("/", headers=ALICE)).text()
        finally:
            await server.close()
