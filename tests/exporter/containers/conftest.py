"""A Docker engine with the answers of a real one (20.10, recorded), on a socket of its own."""

from __future__ import annotations

import http.server
import json
import shutil
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

RECORDED = Path(__file__).with_name("recorded")


def recorded(name: str) -> bytes:
    """The answer of the real engine."""
    return (RECORDED / name).read_bytes()


class FakeEngine:
    """Answers in the versions from `oldest` to `newest` of the API, as engines do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.oldest, self.newest = (1, 12), (1, 41)
        self.containers: dict[str, bytes] = {}
        self.logs: dict[str, bytes] = {}
        self.events = b""
        self.status: int | None = None
        """The status of all answers, where it is not that of a sound engine."""
        self.asked: list[str] = []
        """The targets of all questions."""
        self._server: _Server | None = None

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._server = _Server(str(self.path), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def stop(self) -> None:
        """As an engine that is killed: its socket stays, and nobody listens at it."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, target: str) -> tuple[int, bytes]:
        """Status and body."""
        self.asked.append(target)
        if self.status is not None:
            return self.status, b'{"message":"it does not feel well"}\n'
        parts = urlsplit(target)
        if parts.path == "/_ping":
            return 200, b"OK"
        version, *place = parts.path.strip("/").split("/")
        number = tuple(map(int, version.removeprefix("v").split(".")))
        if not self.oldest <= number <= self.newest:
            return 400, b'{"message":"client version is too old or too new"}\n'
        match place:
            case ["events"]:
                return 200, self._events(parse_qs(parts.query))
            case ["containers", name, what] if name in self.containers:
                return 200, self.containers[name] if what == "json" else self.logs.get(name, b"")
            case _:
                return 404, recorded("no-such-container.json")

    def _events(self, query: dict[str, list[str]]) -> bytes:
        """Those within the time and of the kinds asked for; the engine's name filter is lax."""
        since, until = float(query["since"][0]), float(query["until"][0])
        filters = json.loads(query["filters"][0])
        kept = [
            line
            for line in self.events.splitlines()
            if since <= (event := json.loads(line))["timeNano"] / 1e9 <= until
            and event["Action"] in filters["event"]
        ]
        return b"".join(line + b"\n" for line in kept)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def _handler(engine: FakeEngine) -> Callable[..., http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body = engine.answer(self.path)
            self.send_response(status)
            self.send_header("Api-Version", ".".join(map(str, engine.newest)))
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in filter(None, (body[:100], body[100:])):
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    # a socket's path is 107 bytes at most
    folder = Path(tempfile.mkdtemp(prefix="engine-"))
    fake = FakeEngine(folder / "docker.sock")
    fake.start()
    yield fake
    fake.stop()
    shutil.rmtree(folder)


@pytest.fixture(name="recorded")
def recorded_answer() -> Callable[[str], bytes]:
    return recorded
