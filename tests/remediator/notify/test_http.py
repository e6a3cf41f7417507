"""Messages over HTTP: what counts as arrived, and that no secret is ever disclosed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_remediator.__main__ import main
from trainwarden_remediator.config.notifications import NotifySettings, Receiver, ReceiverKind
from trainwarden_remediator.config.schema import load_setup
from trainwarden_remediator.config_check.host_warnings import config_warnings
from trainwarden_remediator.exceptions import NotDeliveredError
from trainwarden_remediator.notify import http
from trainwarden_remediator.notify.formats import build_request
from trainwarden_remediator.notify.http import HttpSender, parse_retry_after
from trainwarden_remediator.notify.messages import build_trial_message
from trainwarden_remediator.notify.notifier import try_receivers

SECRET = "T0SECRET"


class Chat:
    """A server that takes messages, or does with them what the test says."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._take)
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        return str(self.server.make_url(f"/services/{SECRET}"))

    async def _take(self, request: web.Request) -> web.Response:
        self.taken.append((request.method, dict(request.headers), await request.read()))
        return web.Response(status=self.status, headers=self.headers, text=f"echo {SECRET}")


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    chat = Chat()
    await chat.server.start_server()
    yield chat
    await chat.server.close()


def receiver(**content: Any) -> Receiver:
    (found,) = NotifySettings.model_validate(
        {"receivers": [{"name": "ops", "kind": "slack", **content}]}
    ).receivers
    return found


async def post(to: Receiver) -> None:
    async with aiohttp.ClientSession() as session:
        await HttpSender(session)(to, build_request(to.kind, build_trial_message(instance="b")))


@pytest.mark.parametrize("kind", ["slack", "discord", "mattermost", "ntfy", "json"])
async def test_a_message_of_each_kind_arrives(chat: Chat, kind: ReceiverKind) -> None:
    await post(receiver(kind=kind, url=chat.url))
    ((method, headers, body),) = chat.taken
    assert method == "POST"
    assert b"test of an urgent notification" in body
    assert ("application/json" in headers["Content-Type"]) == (kind != "ntfy")


async def test_address_and_token_are_read_from_their_files_each_time(
    chat: Chat, tmp_path: Path
) -> None:
    to = receiver(url_file=tmp_path / "url", token_file=tmp_path / "token")
    (tmp_path / "url").write_text("http://127.0.0.1:1/gone\n")
    (tmp_path / "token").write_text("one\n")
    with pytest.raises(NotDeliveredError):
        await post(to)
    (tmp_path / "url").write_text(f"{chat.url}\n")
    (tmp_path / "token").write_text("another\n")
    await post(to)
    ((_, headers, _),) = chat.taken
    assert headers["Authorization"] == "Bearer another"


@pytest.mark.parametrize("status", [302, 307, 400, 401, 404, 413, 429, 500, 503])
async def test_only_a_success_has_arrived_and_no_redirect_is_followed(
    chat: Chat, status: int
) -> None:
    chat.status = status
    chat.headers = {"Location": "/elsewhere", "Retry-After": "30"}
    with pytest.raises(NotDeliveredError, match=f"^responded with status {status}$") as caught:
        await post(receiver(url=chat.url))
    assert caught.value.rejected == (status in (400, 413))
    assert caught.value.retry_after == 30
    assert len(chat.taken) == 1


async def test_no_answer_is_waited_for_for_ever(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "POST_TIMEOUT_SECONDS", 0.0)
    with pytest.raises(NotDeliveredError, match="no response"):
        await post(receiver(url=chat.url))


FILES = {
    "url-with-user": f"https://me:{SECRET}@example.org/",
    "no-url": SECRET,
    "two-lines": f"https://example.org/{SECRET}\nhttps://example.org/",
    "empty": "",
    "not-ascii": f"https://example.org/{SECRET}\u00e4",
    "a-port-out-of-range": f"https://example.org:99999/{SECRET}",
    "nobody-there": f"http://127.0.0.1:1/{SECRET}",
    "no-such-host": f"http://nowhere.invalid/{SECRET}",
}


@pytest.mark.parametrize("content", FILES.values(), ids=FILES.keys())
async def test_no_error_tells_an_address(
    content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "url").write_text(content)
    with pytest.raises(NotDeliveredError) as caught:
        await post(receiver(url_file=tmp_path / "url"))
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert SECRET not in caplog.text


def test_an_address_in_the_file_is_not_shown_either() -> None:
    to = receiver(url=f"https://example.org/{SECRET}")
    assert SECRET not in repr(to)
    assert SECRET not in to.model_dump_json()


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ({"url": f"ftp://example.org/{SECRET}"}, "not a URL"),
        ({"url": f"https://me:{SECRET}@example.org/"}, "no user"),
        ({}, "missing: set `url` or `url_file`"),
        ({"url": "https://a/", "url_file": "b"}, "not both"),
        ({"url": "https://a/", "events": ["gave_up", "gave_up"]}, "duplicate event"),
        ({"url": "https://a/", "events": []}, "at least 1 item"),
        ({"url": "https://a/", "events": ["boredom"]}, "expected 'gave_up'"),
        ({"url": "https://a/", "kind": "pigeon"}, "expected 'slack'"),
        ({"url": "https://a/", "name": "a b"}, "a name has"),
    ],
)
def test_a_wrong_receiver_is_refused_with_its_line(
    content: dict[str, Any], output: str, tmp_path: Path
) -> None:
    one = {"name": "ops", "kind": "slack", **content}
    path = _config(tmp_path, one)
    with pytest.raises(ConfigError) as caught:
        load_setup(path)
    assert output in str(caught.value)
    assert "remediator.yml:" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_two_receivers_of_one_name_are_refused(tmp_path: Path) -> None:
    one = {"name": "ops", "kind": "slack", "url": "https://a/"}
    with pytest.raises(ConfigError, match="another receiver is named ops"):
        load_setup(_config(tmp_path, one, one))


def test_a_file_with_no_address_is_a_doubt(tmp_path: Path) -> None:
    path = _config(tmp_path, {"name": "ops", "kind": "slack", "url_file": "absent"})
    (doubt,) = (one for one in config_warnings(load_setup(path)) if "notify" in one)
    assert doubt.startswith("notify.receivers[0]: cannot send: ")
    assert "absent: No such file" in doubt


def _config(folder: Path, *receivers: dict[str, Any]) -> Path:
    (folder / "exporter.yml").write_text("{}")
    path = folder / "remediator.yml"
    path.write_text(yaml.safe_dump({"insecure": True, "notify": {"receivers": list(receivers)}}))
    return path


Captured = pytest.CaptureFixture[str]


async def test_a_trial_reaches_each_receiver_and_says_which_it_does_not(
    chat: Chat, tmp_path: Path
) -> None:
    path = _config(
        tmp_path,
        {"name": "good", "kind": "json", "url": chat.url},
        {"name": "bad", "kind": "json", "url": f"http://127.0.0.1:1/{SECRET}"},
    )
    notify = load_setup(path).config.notify
    found = dict(await try_receivers(notify, notify.receivers))
    assert found["good"] == ""
    assert found["bad"] == "unreachable: connection refused"
    ((_, _, body),) = chat.taken
    assert json.loads(body)["title"].startswith("test of an urgent notification")


def test_notify_test_fails_when_a_message_was_not_sent(tmp_path: Path, capsys: Captured) -> None:
    url = f"http://127.0.0.1:1/{SECRET}"
    path = _config(tmp_path, {"name": "bad", "kind": "json", "url": url})
    assert main(["notify-test", "--config.file", str(path)]) == 1
    output = capsys.readouterr()
    assert output.out == "bad: not sent: unreachable: connection refused\n"
    assert SECRET not in output.out + output.err
    assert main(["notify-test", "--config.file", str(path), "other"]) == 1
    assert "has no receiver named other" in capsys.readouterr().err


async def test_notify_test_warns_where_no_remediator_has_read_the_file(
    chat: Chat, tmp_path: Path, capsys: Captured
) -> None:
    path = _config(tmp_path, {"name": "good", "kind": "json", "url": chat.url})
    path.write_text(path.read_text() + "exporter: {url: 'http://127.0.0.1:1'}\n")
    assert await asyncio.to_thread(main, ["notify-test", "--config.file", str(path)]) == 0
    assert capsys.readouterr().err == (
        f"warning: it is not known whether a remediator has read {path}: http://127.0.0.1:1 shows"
        " none\n"
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("0.5", 0.5), ("", 0), ("-1", 0), ("nan", 0), ("1e9", 0), ("999999", 3600),
     ("Wed, 21 Oct 2026 07:28:00 GMT", 0)],
)  # fmt: skip
def test_a_wait_is_read_and_never_believed_beyond_an_hour(text: str, seconds: float) -> None:
    assert parse_retry_after(text) == seconds
