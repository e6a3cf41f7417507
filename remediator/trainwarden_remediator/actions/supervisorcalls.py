"""Asks supervisord, and tells it what to do, by its XML-RPC interface.

Source: the API documentation of Supervisor 4 (supervisord.org/api.html).
"""

from __future__ import annotations

import base64
import http.client
import xmlrpc.client
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args
from urllib.parse import urlsplit

from trainwarden_exporter.exceptions import TrainwardenError
from trainwarden_exporter.unixhttp import UnixConnection

State = Literal[
    "STOPPED", "STARTING", "RUNNING", "BACKOFF", "STOPPING", "EXITED", "FATAL", "UNKNOWN"
]
STATES: tuple[State, ...] = get_args(State)

ALREADY_STARTED, NOT_RUNNING = 60, 70
"""Faults that say how a program stands (supervisor.xmlrpc.Faults)."""


class SupervisordError(TrainwardenError):
    """It cannot be asked, or did not do as it was told; `fault` is its own number for why."""

    def __init__(self, message: str, fault: int = 0) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Program:
    """A program as supervisord shows it. Moments are whole Unix seconds, 0 for never."""

    name: str
    group: str
    state: State
    start: int
    stop: int
    now: int
    pid: int
    error: str


class Supervisord:
    """The one at that socket or URL. All methods raise SupervisordError."""

    def __init__(self, place: Path | str, account: tuple[str, str] | None = None) -> None:
        self._place = place
        self._account = account

    def info(self, name: str, *, within: float) -> Program:
        return parse_program(self._call("getProcessInfo", name, within=within))

    def stop(self, name: str, *, within: float) -> None:
        """Returns when it has ended."""
        self._call("stopProcess", name, within=within)

    def start(self, name: str, *, within: float) -> None:
        """Returns when it has run for its `startsecs`."""
        self._call("startProcess", name, within=within)

    def _call(self, method: str, name: str, *, within: float) -> object:
        transport = _Transport(self._place, self._account, within)
        try:
            with xmlrpc.client.ServerProxy("http://localhost/RPC2", transport) as proxy:
                return cast("object", getattr(proxy.supervisor, method)(name))
        except xmlrpc.client.Fault as error:
            raise SupervisordError(error.faultString, error.faultCode) from error
        except xmlrpc.client.ProtocolError as error:
            raise SupervisordError(f"it answered {error.errcode} {error.errmsg}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            # also what is no XML: expat's errors are its own
            raise SupervisordError(f"{self._place}: {error}") from error
        except xmlrpc.client.Error as error:
            raise SupervisordError(f"{self._place}: {error!r}") from error


def parse_program(answer: object) -> Program:
    """What `getProcessInfo` answers. Raises SupervisordError for anything else."""
    try:
        found = cast("dict[str, Any]", answer)
        state = found["statename"]
        if state not in STATES:
            raise SupervisordError(f"a state that is not known: {state!r}")
        return Program(
            name=str(found["name"]),
            group=str(found["group"]),
            state=state,
            start=int(found["start"]),
            stop=int(found["stop"]),
            now=int(found["now"]),
            pid=int(found["pid"]),
            error=str(found.get("spawnerr") or ""),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SupervisordError(f"no description of a program: {error!r}") from error


class _Transport(xmlrpc.client.Transport):
    def __init__(self, place: Path | str, account: tuple[str, str] | None, timeout: float) -> None:
        super().__init__()
        self._place = place
        self._account = account
        self._timeout = timeout

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        connection = self._connect()
        # Where the base class finds what it has to close.
        self._connection = host, connection
        return connection

    def _connect(self) -> http.client.HTTPConnection:
        if isinstance(self._place, Path):
            return UnixConnection(self._place, self._timeout)
        parts = urlsplit(self._place)
        host = parts.hostname or "localhost"
        return http.client.HTTPConnection(host, parts.port, timeout=self._timeout)

    def send_headers(
        self, connection: http.client.HTTPConnection, headers: list[tuple[str, str]]
    ) -> None:
        super().send_headers(connection, headers)
        if self._account is not None:
            told = base64.b64encode(":".join(self._account).encode()).decode()
            connection.putheader("Authorization", f"Basic {told}")
