"""An operator holds and resumes from a browser; no other web page can."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.remediator.fake_clock import FakeClock
from tests.remediator.live_host import Box
from tests.remediator.samples import TOKEN

from trainwarden_remediator.api.hold_page import MAX_TOKENS, TOKEN_SECONDS, OneTimeTokens
from trainwarden_remediator.api.server import build_app
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.holds.hold_file import read_holds

LOGIN = {
    "Authorization": f"Basic {base64.b64encode(f'anybody:{TOKEN}'.encode()).decode()}",
}


@asynccontextmanager
async def served(box: Box) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    remediator = Remediator(box.config_file)
    async with remediator, TestClient(TestServer(build_app(remediator))) as client:
        remediator.readiness.ready = True
        yield client


def token_in(page: str) -> str:
    return str(re.findall(r'name="token" value="([^"]+)"', page)[0])


def headline(page: str) -> str:
    return html.unescape(re.findall(r'<p class="verdict \w+">(.*?)</p>', page)[0])


async def test_the_page_needs_the_login_and_may_send_its_own_form(box: Box) -> None:
    async with served(box) as client:
        refused = await client.get("/hold")
        assert refused.status == 401
        assert "password is a token" in await refused.text()
        assert (await client.post("/hold", data={"command": "hold"})).status == 401
        shown = await client.get("/hold", headers=LOGIN)
        assert "form-action 'self'" in shown.headers["Content-Security-Policy"]
        assert "form-action 'none'" in (await client.get("/")).headers["Content-Security-Policy"]
        assert headline(await shown.text()) == "No actions are held."
        assert '<a href="hold">hold</a>' in await (await client.get("/")).text()


async def test_a_hold_and_its_end_are_in_force_and_in_the_journal_with_who_and_why(
    box: Box,
) -> None:
    file = box.config_file.parent / "state" / "hold"
    async with served(box) as client:
        page = await (await client.get("/hold", headers=LOGIN)).text()
        form = {"token": token_in(page), "command": "hold", "scope": "demo", "for": "1h"}
        sent = {**form, "why": "I look\ninto it"}
        page = await (await client.post("/hold", headers=LOGIN, data=sent)).text()
        assert headline(page).startswith("held: demo by token 1 from 127.0.0.1, on the page until")
        (hold,) = read_holds(file, 0)
        assert (hold.run, hold.worker, hold.why) == ("demo", "", "I look into it")
        assert hold.until is not None

        again = await (await client.post("/hold", headers=LOGIN, data=sent)).text()
        assert headline(again) == "The form was used or is too old: try again."
        assert len(read_holds(file, 0)) == 1

        form = {"token": token_in(page), "command": "resume", "scope": "demo"}
        page = await (await client.post("/hold", headers=LOGIN, data=form)).text()
        assert headline(page) == "resumed: 1 hold lifted"
        assert read_holds(file, 0) == ()
    assert [one.kind for one in box.events()] == ["hold", "resume"]
    assert "on the page" in box.events()[0].facts["who"]


async def test_a_wrong_form_changes_nothing(box: Box) -> None:
    async with served(box) as client:
        for change, status in (
            ({"command": "restart"}, 400),
            ({"scope": "nothing"}, 400),
            ({"for": "soon"}, 400),
            ({"token": "guessed"}, 200),
        ):
            page = await (await client.get("/hold", headers=LOGIN)).text()
            form = {"token": token_in(page), "command": "hold", **change}
            assert (await client.post("/hold", headers=LOGIN, data=form)).status == status
    assert read_holds(box.config_file.parent / "state" / "hold", 0) == ()


def test_a_token_is_valid_once_and_for_a_while() -> None:
    clock = FakeClock()
    tokens = OneTimeTokens(clock.monotonic)
    first, late = tokens.issue(), tokens.issue()
    assert tokens.use(first)
    assert not tokens.use(first)
    clock.pass_by(TOKEN_SECONDS + 1)
    assert not tokens.use(late)
    oldest = tokens.issue()
    for _ in range(MAX_TOKENS):
        tokens.issue()
    assert not tokens.use(oldest)
