"""The whole exporter, and a real server that computes in the one thread that answers its probes."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from trainwarden_exporter.app import Exporter

SERVER = """
import http.server, pathlib, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/generate":
            while not pathlib.Path("generated").exists():
                sum(range(10_000))
        if self.path == "/deadlock":
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass

class Server(http.server.HTTPServer):
    def handle_error(self, *_):  # the probe has not waited
        pass

Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
ROUNDS = 12
"""Unanswered rounds: with the shipped timeout, three minutes."""
MOST_SCRAPES = 500

CONFIG = """
runs:
  - name: own
    workers: [{{name: server, match: {{command: 'own_server.py {port}$'}}}}]
    inference:
      - {{name: server, worker: server, engine: generic, url: 'http://127.0.0.1:{port}/health',
         timeout: 500ms, interval: 1s{more}}}
"""


class Watch:
    """A running server, and the exporter that watches it."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.folder = folder
        self.config = folder / "exporter.yml"
        script = folder / "own_server.py"
        script.write_text(SERVER)
        self.server = subprocess.Popen([sys.executable, script, str(self.port)], cwd=folder)
        self.exporter: Exporter | None = None

    def start(self, more: str = "") -> None:
        self.config.write_text(CONFIG.format(port=self.port, more=more))
        self.exporter = Exporter(self.config)

    def ask(self, path: str) -> threading.Thread:
        """Sends a request, as the trainer does."""

        def request() -> None:
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}").close()

        thread = threading.Thread(target=request, daemon=True)
        thread.start()
        return thread

    async def scrapes(self) -> AsyncIterator[dict[str, float]]:
        """Yields what each scrape shows of the server, by metric and its label `reason`."""
        assert self.exporter is not None
        for _ in range(MOST_SCRAPES):
            shown = {}
            for outcome in await self.exporter.scraper.scrape(5):
                for family in outcome.families:
                    for sample in family.samples:
                        if sample.name.startswith("trainwarden_inference_"):
                            name = sample.name.removeprefix("trainwarden_inference_")
                            reason = sample.labels.get("reason", "")
                            shown[f"{name} {reason}".strip()] = sample.value
            yield shown
            await asyncio.sleep(0.2)
        raise AssertionError(f"not seen: {shown}")

    async def until(self, reason: str) -> dict[str, float]:
        async for shown in self.scrapes():
            if shown.get(f"reason {reason}") == 1:
                return shown
        raise AssertionError

    def close(self) -> None:
        if self.exporter is not None:
            self.exporter.close()
        self.server.kill()
        self.server.wait()


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    one = Watch(tmp_path)
    yield one
    one.close()


def not_ready(shown: dict[str, float]) -> set[str]:
    return {name.split()[1] for name in shown if name.startswith("not_ready_since")}


async def test_a_long_request_is_no_hang_and_a_deadlock_is(watch: Watch) -> None:
    watch.start()
    before = await watch.until("ok")
    request = watch.ask("/generate")
    async for shown in watch.scrapes():
        assert shown["up"] == 1, shown
        assert not_ready(shown) == set()
        assert shown["reason ok"] + shown["reason busy"] == 1
        if shown["consecutive_failures"] >= ROUNDS:
            break
    assert shown["reason busy"] == 1
    assert shown["progress_timestamp_seconds"] > before["seen_timestamp_seconds"]
    (watch.folder / "generated").touch()
    request.join(60)
    assert not request.is_alive()
    await watch.until("ok")
    watch.ask("/deadlock")
    shown = await watch.until("hung")
    assert (shown["up"], not_ready(shown)) == (0, {"hung"})


async def test_a_busy_server_that_is_stopped_hangs(watch: Watch) -> None:
    watch.start()
    await watch.until("ok")
    watch.ask("/generate")
    await watch.until("busy")
    watch.server.send_signal(signal.SIGSTOP)
    await watch.until("hung")


async def test_beyond_its_limit_it_has_the_alert_of_a_server_that_does_not_answer(
    watch: Watch,
) -> None:
    watch.start(", busy_limit: 3s")
    await watch.until("ok")
    watch.ask("/generate")
    async for shown in watch.scrapes():
        if shown["up"] == 0:
            break
    assert shown["reason busy"] == 1
    assert not_ready(shown) == {"timeout"}
