"""Asks a Docker engine, over its unix socket."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal, TypeVar, get_args
from urllib.parse import urlencode

from trainwarden_exporter.containers.dockerformat import (
    Event,
    Inspection,
    parse_events,
    parse_inspection,
    parse_log,
)
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.unixhttp import UnixConnection

T = TypeVar("T")
EngineState = Literal["ok", "missing", "refused", "denied", "failing"]
ENGINE_STATES: tuple[EngineState, ...] = get_args(EngineState)

NEWEST_API = (1, 54)
"""The newest version of the API that this was written by."""

_LARGEST_ANSWER = 16 << 20
_VERSION = re.compile(r"(\d+)\.(\d+)")
_ACTIONS = ("create", "start", "die", "oom")


class EngineError(CollectError):
    """The engine cannot be asked.

    `state` says how: there is no socket (`missing`), nobody listens at it (`refused`), it is not
    for us (`denied`), or what came back is no answer, or none came (`failing`).
    """

    def __init__(self, state: EngineState, message: str) -> None:
        super().__init__(message)
        self.state = state


class Engine:
    """The Docker engine that listens at `path`; no question waits for it longer than `patience`.

    Each question has a connection of its own, so an engine that was started anew is none the less
    the one that is asked. All methods raise EngineError.
    """

    def __init__(self, path: Path, *, patience: float = 10.0) -> None:
        self._path = path
        self._patience = patience
        self._version = ""

    def inspect(self, name: str) -> Inspection | None:
        """The container of that name, None where there is none."""
        status, body = self._ask(f"/containers/{name}/json")
        if status == http.client.NOT_FOUND:
            return None
        return self._parsed(status, body, parse_inspection)

    def events(
        self, name: str, since: float, until: float, actions: Collection[str] = _ACTIONS
    ) -> tuple[Event, ...]:
        """The beginnings, starts, ends, and kills for want of memory, of containers of that name.

        Or what else of it is named in `actions`.

        `since` and `until` in unix seconds; both are past. The engine remembers about 250 events of
        all kinds, and none from before it was started itself.
        """
        filters = {"type": ["container"], "event": [*actions], "container": [name]}
        query = {"since": f"{since:.9f}", "until": f"{until:.9f}", "filters": json.dumps(filters)}
        found = self._parsed(*self._ask("/events", query), lambda body: tuple(parse_events(body)))
        # the filter also lets containers through whose id begins with the name
        return tuple(event for event in found if event.name == name)

    def log(self, name: str, *, tail: int, tty: bool) -> list[tuple[float, str]]:
        """The last `tail` lines, each with the time at which it was written.

        None at all where its log cannot be read back.
        """
        query = {"stdout": "1", "stderr": "1", "timestamps": "1", "tail": str(tail)}
        status, body = self._ask(f"/containers/{name}/logs", query)
        return parse_log(body, tty=tty) if status == http.client.OK else []

    def _ask(
        self,
        place: str,
        query: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        patience: float | None = None,
    ) -> tuple[int, bytes]:
        """Ask in the newest version that both sides know; engines from 29 on refuse old ones."""
        if not self._version:
            _, headers, _ = self._send("GET", "/_ping")
            self._version = common_version(headers.get("Api-Version", ""))
        target = f"/v{self._version}{place}" + (f"?{urlencode(query)}" if query else "")
        status, _, body = self._send(method, target, patience)
        if status == http.client.BAD_REQUEST:
            self._version = ""  # it may have been replaced by an engine of another version
        return status, body

    def _send(
        self, method: str, target: str, patience: float | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        connection = UnixConnection(self._path, patience or self._patience)
        try:
            connection.request(method, target)
            response = connection.getresponse()
            body = response.read(_LARGEST_ANSWER + 1)
        except (OSError, http.client.HTTPException) as error:
            self._version = ""
            raise EngineError(_state_of(error), f"{self._path}: {_sentence(error)}") from error
        finally:
            connection.close()
        if len(body) > _LARGEST_ANSWER:
            raise EngineError("failing", f"{self._path}: an answer of more than 16 MiB")
        return response.status, dict(response.getheaders()), body

    def _parsed(self, status: int, body: bytes, parse: Callable[[bytes], T]) -> T:
        if status != http.client.OK:
            said = body[:200].decode("utf-8", "replace").strip()
            raise EngineError("failing", f"{self._path}: status {status}: {said}")
        try:
            return parse(body)
        except ValueError as error:
            raise EngineError("failing", f"{self._path}: {error}") from error


def common_version(theirs: str) -> str:
    """The newest version of the API that an engine whose newest is `theirs` has in common with us.

    Ours where it does not say.
    """
    match = _VERSION.fullmatch(theirs)
    number = min((int(match[1]), int(match[2])), NEWEST_API) if match else NEWEST_API
    return ".".join(map(str, number))


def _state_of(error: Exception) -> EngineState:
    match error:
        case FileNotFoundError():
            return "missing"
        case ConnectionRefusedError():
            return "refused"
        case PermissionError():
            return "denied"
        case _:
            return "failing"


def _sentence(error: Exception) -> str:
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or str(error) or type(error).__name__
