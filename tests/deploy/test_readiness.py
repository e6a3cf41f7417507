"""How `trainwarden up` tells its own programs from those of another stack."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.waiting import until

import ports
import readiness
import supervision
from runfolder import RunFolder

LISTEN = f"""
import socket, sys
server = socket.create_server(({ports.LOOPBACK!r}, int(sys.argv[1])))
sys.stdin.read()
"""


class AlwaysReady(BaseHTTPRequestHandler):
    """Answers as any part of a stack does, also one of another stack."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@contextmanager
def ready_server() -> Iterator[int]:
    server = HTTPServer((ports.LOOPBACK, 0), AlwaysReady)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def listening_child(port: int) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", LISTEN, str(port)], stdin=subprocess.PIPE) as one:
        until(lambda: _connects(port))
        yield
        assert one.stdin is not None
        one.stdin.close()


def _connects(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((ports.LOOPBACK, port)) == 0


def test_a_program_of_another_stack_is_not_taken_for_an_own_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ready_server() as other, subprocess.Popen(["sleep", "100"]) as supervisord:
        run = RunFolder(
            tmp_path, dict.fromkeys(readiness.SERVERS, other), tmp_path, tmp_path, demo=()
        )
        running = {
            name: supervision.Program(name, "RUNNING", supervisord.pid, 0)
            for name in readiness.SERVERS
        }
        monkeypatch.setattr(supervision, "read_programs", lambda _: running)
        with pytest.raises(readiness.PortTakenError, match=f"has taken port {other} of the exp"):
            readiness.wait(run, supervisord, lambda _: None)
        supervisord.terminate()


def test_a_port_is_taken_if_none_but_others_listen_there() -> None:
    own, free = ports.free_port(), ports.free_port()
    with socket.create_server((ports.LOOPBACK, 0)) as other, listening_child(own):
        chosen = {"exporter": other.getsockname()[1], "remediator": own, "prometheus": free}
        assert readiness.others_listening(chosen, chosen) == ["exporter"]
        assert readiness.others_listening(chosen, ["remediator", "trainer"]) == []


def test_a_listener_on_another_address_takes_no_port() -> None:
    with socket.create_server(("127.0.0.2", 0)) as elsewhere:
        chosen = {"exporter": elsewhere.getsockname()[1]}
        assert readiness.others_listening(chosen, chosen) == []
