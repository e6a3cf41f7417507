"""An account takes the port of the remediator while that restarts."""

from __future__ import annotations

import subprocess
import sys
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.hostile.accounts import STRANGER, needs_root
from tests.hostile.programs import REMEDIATOR, Program
from tests.waiting import until

pytestmark = needs_root

TAKE = """
import os, socket, sys
account = int(sys.argv[2])
os.setgroups([]), os.setgid(account), os.setuid(account)  # it could not start this Python
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    print("taken", flush=True)
    peer, _ = server.accept()
    print(peer.recv(4096).decode().partition("Authorization: ")[2].splitlines()[0], flush=True)
    peer.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
"""
"""As an account, listens at a port and prints the credential of the first request."""


def take(port: int, token_file: Path) -> str:
    """Has an account take the port; returns the credential that Alertmanager sends there."""
    with subprocess.Popen(
        [sys.executable, "-c", TAKE, str(port), str(STRANGER)],
        stdout=subprocess.PIPE,
        text=True,
    ) as squatter:
        assert squatter.stdout is not None
        assert squatter.stdout.readline() == "taken\n"
        # Alertmanager reads its file for each notification.
        given = {"Authorization": f"Bearer {token_file.read_text().strip()}"}
        alertmanager = HTTPConnection("127.0.0.1", port, timeout=60)
        alertmanager.request("POST", "/webhook", b"{}", given)
        assert alertmanager.getresponse().status == HTTPStatus.OK
        alertmanager.close()
        return squatter.stdout.readline().strip()


@pytest.mark.parametrize("renews", [True, False])
def test_the_token_that_whatever_had_the_port_has_seen_is_not_valid_any_more(
    tmp_path: Path, *, renews: bool
) -> None:
    options = ["--token.renew"] if renews else []
    before = Program(REMEDIATOR, tmp_path, *options)
    before.close()
    port = before.address[1]
    seen = take(port, tmp_path / "token")
    again = Program(
        REMEDIATOR, tmp_path, *options, f"--web.listen-address=127.0.0.1:{port}", waits=False
    )
    again.address = before.address
    try:
        until(again.is_ready)
        rejected, accepted = HTTPStatus.UNAUTHORIZED, HTTPStatus.OK
        assert hold(again, seen) == (rejected if renews else accepted)
        assert hold(again, f"Bearer {(tmp_path / 'token').read_text().strip()}") == accepted
    finally:
        again.close()


def hold(program: Program, credential: str) -> int:
    return program.ask("POST", "/-/hold", Authorization=credential).status
