"""The socket of a run: `status`, `restart` and `stop`, one line of JSON each way.

Only processes of the same account, and root, are answered.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainwarden.run.ending import GRACE_SECONDS, MAX_GRACE_SECONDS
from trainwarden.run.policy import NEVER

MAX_CLIENTS = 8
MAX_REQUEST = 4096
_CREDENTIALS = struct.Struct("3i")


class Client:
    """A connection, with what it has sent so far."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""
        self._follows = False
        """Whether it wants to know what happens before the answer."""
        self.closed = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self) -> dict[str, Any] | None:
        """Returns the request once it is complete; answers and closes if it is no request."""
        try:
            data = self._connection.recv(MAX_REQUEST)
        except OSError:
            data = b""
        self._received += data
        line, end, _ = self._received.partition(b"\n")
        if not end:
            if not data or len(self._received) > MAX_REQUEST:
                self.close()
            return None
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        if isinstance(request, dict):
            self._follows = request.get("follow") is True
            return request
        self.answer(error="not a JSON object")
        return None

    def answer(self, **content: Any) -> None:
        """Sends the answer, if the client still listens, and closes."""
        with suppress(OSError):
            self._connection.send(json.dumps(content).encode() + b"\n")
        self.close()

    def tell(self, progress: str, **content: Any) -> None:
        """Sends what happens before the answer, if the client wants to know."""
        if self._follows:
            with suppress(OSError):
                self._connection.send(
                    json.dumps({"progress": progress, **content}).encode() + b"\n"
                )

    def close(self) -> None:
        self.closed = True
        self._connection.close()


class ControlSocket:
    """Listens at `path` with mode 0600."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._path = path
        self.clients: dict[int, Client] = {}
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:  # the path of a socket is limited to 107 bytes; through the folder any is short
                self._socket.bind(f"/proc/self/fd/{folder}/{path.name}")
            finally:
                os.close(folder)
        finally:
            os.umask(before)
        self._socket.setblocking(False)
        self._socket.listen(MAX_CLIENTS)

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        connection.setblocking(False)
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(raw)
        if uid not in (0, os.geteuid()) or len(self.clients) >= MAX_CLIENTS:
            connection.close()
        else:
            self.clients[connection.fileno()] = Client(connection)

    def read(self, descriptor: int) -> tuple[Client, dict[str, Any]] | None:
        """Returns the request of a client, once it is complete; it then no longer counts here."""
        client = self.clients[descriptor]
        request = client.read()
        if request is not None or client.closed:
            del self.clients[descriptor]
        return None if request is None else (client, request)

    def close(self) -> None:
        for client in self.clients.values():
            client.close()
        self._socket.close()
        self._path.unlink(missing_ok=True)


def refusal(request: Mapping[str, Any], announced: Mapping[str, Any], *, busy: bool) -> str:
    """Returns why a request to restart or stop an announced command is not carried out, or ""."""
    restarts = request["command"] == "restart"
    grace = request.get("grace", GRACE_SECONDS)
    if not isinstance(grace, int | float) or not 0 <= grace <= MAX_GRACE_SECONDS:
        return f"grace: expected a number of seconds up to {MAX_GRACE_SECONDS:g}"
    if busy:
        return "another request is being carried out"
    if restarts and announced["restart"] == NEVER:
        return "the run was started with --restart never"
    meant = request.get("pid"), request.get("start_ticks")
    own = announced["pid"], announced["start_ticks"]
    if meant != own and (restarts or "pid" in request):
        return f"process {announced['pid']} is not the requested one"
    return ""
