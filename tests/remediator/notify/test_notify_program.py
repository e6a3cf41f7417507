"""The real program notifies the on-call: once, also when it is killed or alone."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest
from tests.remediator.engine.test_crash_recovery import Program
from tests.remediator.live_host import Box
from tests.remediator.samples import delivery
from tests.waiting import connected, until

SECRET = "T0SECRET"
KILLED_WHEN_IT_HAS_BEEN_SENT = """
from trainwarden_remediator.notify.outbox import Outbox
Outbox.settle = die
"""
KILLED_BEFORE_IT_IS_SENT = """
from trainwarden_remediator.notify.http import HttpSender
HttpSender.__call__ = die
"""


class Chat:
    """A server that takes messages, once the test lets it."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.status = 200
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/{SECRET}"

    def titles(self) -> list[str]:
        return [content["items"][0]["title"] for content in self.taken]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        chat = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if chat.status == 200:
                    chat.taken.append(json.loads(body))
                self.send_response(chat.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@pytest.fixture
def chat() -> Iterator[Chat]:
    chat = Chat()
    yield chat
    chat.close()


@pytest.fixture
def program(box: Box, chat: Chat) -> Iterator[Program]:
    (box.folder / "chat-url").write_text(f"{chat.url}\n")
    receiver = {"name": "ops", "kind": "json", "url_file": "chat-url"}
    box.configure(
        notify={"receivers": [receiver]},
        playbooks={
            "restart_leaking_worker": {"condition": "over_memory_limit", "action": "notify"}
        },
    )
    program = Program(box)
    yield program
    program.close()


def hear(program: Program) -> None:
    program.box.start_worker()
    assert program.ask("/webhook", delivery(program.box.alert())) == 200


def metrics(program: Program) -> str:
    opener = build_opener(ProxyHandler({}))

    def ask() -> str:
        with opener.open(f"http://127.0.0.1:{program.port}/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    return connected(ask)


SENT = 'trainwarden_remediator_notifications_total{receiver="ops",result="sent"}'


def test_the_on_call_is_paged_once_and_it_is_remembered(program: Program, chat: Chat) -> None:
    child = program.start()
    hear(program)
    until(lambda: f"{SENT} 1.0" in metrics(program))
    assert chat.titles() == ["operator needed"]
    assert chat.taken[0]["items"][0]["worker"] == "demo/rollout-0"
    child.send_signal(signal.SIGKILL)
    child.wait(60)
    program.start()
    assert program.ask("/webhook", delivery(program.box.alert(ago=1))) == 200
    until(lambda: program.box.journaled().count("alert") == 2)
    until(lambda: [event.kind for event in program.box.events()].count("paged") == 2)
    until(lambda: 'notifications_waiting{receiver="ops"} 0.0' in metrics(program))
    assert len(chat.taken) == 1
    assert SECRET not in program.log + metrics(program)


def test_killed_before_it_is_sent_it_is_sent_when_it_is_back(program: Program, chat: Chat) -> None:
    child = program.start(KILLED_BEFORE_IT_IS_SENT)
    hear(program)
    assert child.wait(60) == -signal.SIGKILL
    assert chat.taken == []
    program.start()
    until(lambda: len(chat.taken) == 1)


def test_killed_before_the_record_it_notifies_twice_rather_than_never(
    program: Program, chat: Chat
) -> None:
    child = program.start(KILLED_WHEN_IT_HAS_BEEN_SENT)
    hear(program)
    assert child.wait(60) == -signal.SIGKILL
    program.start()
    until(lambda: f"{SENT} 1.0" in metrics(program))
    assert chat.titles() == ["operator needed"] * 2


def test_the_on_call_is_paged_when_alertmanager_and_exporter_are_dead(
    program: Program, chat: Chat
) -> None:
    program.box.blind = True
    program.start()
    hear(program)
    until(lambda: len(chat.taken) == 1)
    assert chat.titles() == ["operator needed"]


def test_a_receiver_that_is_away_is_shown_and_holds_nothing_up(
    program: Program, chat: Chat
) -> None:
    chat.status = 503
    program.start()
    hear(program)
    failed = 'trainwarden_remediator_notifications_total{receiver="ops",result="failed"}'
    until(lambda: f"{failed} 1.0" in metrics(program))
    page = metrics(program)
    assert 'trainwarden_remediator_notifications_waiting{receiver="ops"} 1.0' in page
    assert 'trainwarden_remediator_oldest_notification_timestamp_seconds{receiver="ops"}' in page
    assert program.ask("/webhook", delivery(program.box.alert(worker="trainer"))) == 200
    until(lambda: program.box.journaled().count("alert") == 2)
    chat.status = 200
    until(lambda: len(chat.taken) == 1)
    assert "responded with status 503" in program.log
    assert SECRET not in program.log
