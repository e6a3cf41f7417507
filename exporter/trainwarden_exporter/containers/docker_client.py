"""Client of a Docker engine over its Unix socket."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal, TypeVar, get_args
from urllib.parse import urlencode

from trainwarden_exporter.containers.docker_api import (
    Event,
    Inspection,
    parse_events,
    parse_inspection,
    parse_log,
)
from trainwarden_exporter.exceptions import CollectError

T = TypeVar("T")
DockerEngineState = Literal["ok", "missing", "refused", "denied", "failing"]
DOCKER_ENGINE_STATES: tuple[DockerEngineState, ...] = get_args(DockerEngineState)

NEWEST_API = (1, 54)
"""Newest API version that this client was written for."""

_MAX_RESPONSE_BYTES = 16 << 20
_VERSION = re.compile(r"(\d+)\.(\d+)")
_ACTIONS = ("create", "start", "die", "oom")


class DockerError(CollectError):
    """The engine is unavailable.

    `state` is `missing` (no socket), `refused` (no listener), `denied` (no permission) or `failing`
    (no response, or an invalid one).
    """

    def __init__(self, state: DockerEngineState, message: str) -> None:
        super().__init__(message)
        self.state = state


class DockerClient:
    """Client of the Docker engine at `path`, with `timeout` per request.

    Each request uses a new connection, so a restart of the engine does not matter. All methods
    raise DockerError.
    """

    def __init__(self, path: Path, *, timeout: float = 10.0) -> None:
        self._path = path
        self._timeout = timeout
        self._version = ""

    def inspect(self, name: str) -> Inspection | None:
        """Returns the container of that name, or None."""
        status, body = self._request(f"/containers/{name}/json")
        if status == http.client.NOT_FOUND:
            return None
        return self._parse(status, body, parse_inspection)

    def events(
        self, name: str, since: float, until: float, actions: Collection[str] = _ACTIONS
    ) -> tuple[Event, ...]:
        """Returns create, start, die and OOM events of containers of that name."""
        filters = {"type": ["container"], "event": [*actions], "container": [name]}
        query = {"since": f"{since:.9f}", "until": f"{until:.9f}", "filters": json.dumps(filters)}
        found = self._parse(
            *self._request("/events", query), lambda body: tuple(parse_events(body))
        )
        # the filter also matches containers whose id starts with the name
        return tuple(event for event in found if event.name == name)

    def log(self, name: str, *, tail: int, tty: bool) -> list[tuple[float, str]]:
        """Returns the last `tail` lines, each with its time.

        Returns no lines if the log driver does not support reading.
        """
        query = {"stdout": "1", "stderr": "1", "timestamps": "1", "tail": str(tail)}
        status, body = self._request(f"/containers/{name}/logs", query)
        return parse_log(body, tty=tty) if status == http.client.OK else []

    def _request(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        timeout: float | None = None,
    ) -> tuple[int, bytes]:
        """Sends a request in the newest common API version; engines from 29 on reject old ones."""
        if not self._version:
            _, headers, _ = self._send("GET", "/_ping")
            self._version = common_version(headers.get("Api-Version", ""))
        target = f"/v{self._version}{path}" + (f"?{urlencode(query)}" if query else "")
        status, _, body = self._send(method, target, timeout)
        if status == http.client.BAD_REQUEST:
            self._version = ""  # it may have been replaced by an engine of another version
        return status, body

    def _send(
        self, method: str, target: str, timeout: float | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        connection = UnixConnection(self._path, timeout or self._timeout)
        try:
            connection.request(method, target)
            response = connection.getresponse()
            body = response.read(_MAX_RESPONSE_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            self._version = ""
            raise DockerError(
                _error_state(error), f"{self._path}: {_error_message(error)}"
            ) from error
        finally:
            connection.close()
        if len(body) > _MAX_RESPONSE_BYTES:
            raise DockerError("failing", f"{self._path}: an answer of more than 16 MiB")
        return response.status, dict(response.getheaders()), body

    def _parse(self, status: int, body: bytes, parse: Callable[[bytes], T]) -> T:
        if status != http.client.OK:
            summary = body[:200].decode("utf-8", "replace").strip()
            raise DockerError("failing", f"{self._path}: status {status}: {summary}")
        try:
            return parse(body)
        except ValueError as error:
            raise DockerError("failing", f"{self._path}: {error}") from error


def common_version(newest: str) -> str:
    """Returns the newest API version in common with an engine whose newest is `newest`.

    Returns ours if the engine does not report one.
    """
    match = _VERSION.fullmatch(newest)
    number = min((int(match[1]), int(match[2])), NEWEST_API) if match else NEWEST_API
    return ".".join(map(str, number))


def _error_state(error: Exception) -> DockerEngineState:
    states: dict[type[Exception], DockerEngineState] = {
        FileNotFoundError: "missing",
        ConnectionRefusedError: "refused",
        PermissionError: "denied",
    }
    return states.get(type(error), "failing")


def _error_message(error: Exception) -> str:
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or str(error) or type(error).__name__


class UnixConnection(http.client.HTTPConnection):
    """A connection to the Unix socket at `path`, with `timeout` in seconds."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
