"""An account takes the port of the exporter or of Alertmanager while that restarts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import pytest
from tests.hostile.accounts import needs_root

from trainwarden_remediator.config.endpoints import Endpoint
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.observation.snapshot import HttpObserver

pytestmark = needs_root

ORDINARY = 23456

SERVE = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("asked", flush=True)
        body = b"[]" if "/api/" in self.path else b""
        self.send_response(200), self.send_header("Content-Length", str(len(body)))
        self.end_headers(), self.wfile.write(body)
# imports what the account cannot read
http.server.HTTPServer(("127.0.0.1", 0), Handler).server_close()
os.setgroups([]), os.setgid(int(sys.argv[1])), os.setuid(int(sys.argv[1]))
with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
"""
"""As an account, answers as an exporter without runs and an Alertmanager without alerts would."""


@contextmanager
def server(uid: int) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Yields the port and the process."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(uid)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("question", "user"), [("observe", None), ("alerts", None), ("alerts", str(ORDINARY))]
)
async def test_it_is_not_asked_unless_the_file_names_it(question: str, user: str | None) -> None:
    with server(ORDINARY) as (port, process):
        endpoint = Endpoint(url=f"http://127.0.0.1:{port}", user=user)
        async with aiohttp.ClientSession() as session:
            ask = getattr(HttpObserver(session, endpoint, endpoint), question)
            if user is None:
                with pytest.raises(ObservationError, match=f"account {ORDINARY} listens"):
                    await ask()
            else:
                await ask()
        process.kill()
        assert process.stdout is not None
        assert ("asked" in process.stdout.read()) is (user is not None)


async def test_what_the_system_answers_counts() -> None:
    with server(0) as (port, _):
        endpoint = Endpoint(url=f"http://127.0.0.1:{port}")
        async with aiohttp.ClientSession() as session:
            await HttpObserver(session, endpoint, endpoint).alerts()
