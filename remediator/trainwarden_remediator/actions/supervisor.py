"""Restarts a worker that is a supervisord program through supervisord's XML-RPC API."""

from __future__ import annotations

import base64
import http.client
import logging
import xmlrpc.client
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError

from trainwarden_exporter.config_file.loader import dotted
from trainwarden_exporter.containers.docker_client import UnixConnection
from trainwarden_exporter.exceptions import TrainwardenError
from trainwarden_remediator.actions.base import RecordStep, action_errors
from trainwarden_remediator.actions.manager_target import ManagedAction, ManagedInstance
from trainwarden_remediator.config.restart_methods.supervisor import SupervisorTarget
from trainwarden_remediator.credentials.outgoing import read_secret
from trainwarden_remediator.exceptions import (
    ActionDeferredError,
    ActionError,
    JournalError,
    SecretError,
)

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
"""Timeout of a request to supervisord."""

SETTLED_SECONDS = 3
"""Seconds after the end of a program during which supervisord may still start it again."""


class SupervisorAction(ManagedAction[SupervisorTarget]):
    """Stops one program and starts it again."""

    restarts_atomically = False

    def read_instance(self) -> ManagedInstance:
        name = self._method.program
        with action_errors(f"cannot query supervisord about {name}", SupervisordError):
            found = self._supervisord().info(name, within=ANSWER_SECONDS)
        return managed_instance(name, found)

    def restart(self, instance: ManagedInstance, token: str, record_step: RecordStep) -> None:
        name = self._method.program
        if instance.running:
            record_step("stop", manager="supervisord", what=name)
            try:
                self._supervisord().stop(name, within=self._method.grace + ANSWER_SECONDS)
            except SupervisordError as error:
                timed_out = isinstance(error.__cause__, TimeoutError)
                if error.fault == NOT_RUNNING:
                    # It ended before the stop request: it exited, or another client stopped it.
                    if blocker := self.read_instance().blocker:
                        raise ActionDeferredError(f"refused: {blocker}") from error
                # `stopwaitsecs` of the program may be longer than the grace.
                elif not (timed_out and self._wait_for_end(instance)):
                    raise ActionError(f"supervisord, stop {name}: {error}") from error
        try:
            record_step("start", manager="supervisord", what=name)
        except JournalError as error:
            if not instance.running:
                raise
            # The stop is in the journal: better than a worker that stays down until the disk has
            # space again.
            log.error("journal failed", extra={"error": str(error)})
        self._start()

    def start(self, instance: ManagedInstance, token: str, record_step: RecordStep) -> None:
        record_step("start", manager="supervisord", what=self._method.program)
        self._start()

    def _start(self) -> None:
        name = self._method.program
        try:
            self._supervisord().start(name, within=self._method.start_timeout + ANSWER_SECONDS)
        except SupervisordError as error:
            if error.fault != ALREADY_STARTED:
                raise ActionError(f"supervisord, start {name}: {error}") from error

    def _supervisord(self) -> SupervisordClient:
        settings = self._method
        account = None
        if settings.username is not None and settings.password_file is not None:
            with action_errors("cannot read the password", SecretError):
                password = read_secret(settings.password_file, encoding="utf-8")
            account = (settings.username, password)
        return SupervisordClient(settings.url or settings.socket, account)


def managed_instance(name: str, program: SupervisedProgram) -> ManagedInstance:
    """Returns the program `name` as an instance, with the reason not to act on it. Pure."""
    return ManagedInstance(
        # Not the pid, which is 0 after the end of the program.
        identity=f"{name} started {program.start or 'never'}",
        running=program.state in ("STARTING", "RUNNING", "STOPPING"),
        stopped=program.state == "STOPPED",
        blocker=_blocker(name, program),
        pid=program.pid or None,
    )


def _blocker(name: str, program: SupervisedProgram) -> str:
    match program.state:
        case "STOPPED":
            what = "stopped on request" if program.start else "never started"
            return f"{name} was {what}"
        case "STARTING" | "BACKOFF":
            return f"supervisord is already starting {name}"
        case "STOPPING":
            return f"{name} is being stopped"
        case "EXITED" if program.now - program.stop < SETTLED_SECONDS:
            return f"{name} has just ended; supervisord may start it again"
        case "UNKNOWN":
            return f"supervisord does not know the state of {name}"
    return ""


SupervisedState = Literal[
    "STOPPED", "STARTING", "RUNNING", "BACKOFF", "STOPPING", "EXITED", "FATAL", "UNKNOWN"
]

ALREADY_STARTED, NOT_RUNNING = 60, 70
"""XML-RPC faults about the state of a program (supervisor.xmlrpc.Faults)."""


class SupervisordError(TrainwardenError):
    """A request to supervisord failed. `fault`: the XML-RPC fault code, 0 without one."""

    def __init__(self, message: str, fault: int = 0) -> None:
        super().__init__(message)
        self.fault = fault


class SupervisedProgram(BaseModel):
    """A program as supervisord shows it. Times are whole Unix seconds, 0 for never."""

    state: SupervisedState = Field(validation_alias="statename")
    start: int
    stop: int
    now: int
    pid: int


class SupervisordClient:
    """Client of the supervisord at a socket or URL. All methods raise SupervisordError."""

    def __init__(self, address: Path | str, account: tuple[str, str] | None = None) -> None:
        self._address = address
        self._account = account

    def info(self, name: str, *, within: float) -> SupervisedProgram:
        return parse_program(self._call("getProcessInfo", name, within=within))

    def stop(self, name: str, *, within: float) -> None:
        """Stops a program and returns after its end."""
        self._call("stopProcess", name, within=within)

    def start(self, name: str, *, within: float) -> None:
        """Starts a program and returns after it has run for its `startsecs`."""
        self._call("startProcess", name, within=within)

    def _call(self, method: str, name: str, *, within: float) -> object:
        transport = Transport(self._address, self._account, within)
        try:
            with xmlrpc.client.ServerProxy("http://localhost/RPC2", transport) as proxy:
                return cast("object", getattr(proxy.supervisor, method)(name))
        except xmlrpc.client.Fault as error:
            raise SupervisordError(error.faultString, error.faultCode) from error
        except xmlrpc.client.ProtocolError as error:
            raise SupervisordError(f"status {error.errcode} {error.errmsg}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            # also for invalid XML: expat's errors are not xmlrpc.client.Error
            raise SupervisordError(f"{self._address}: {error}") from error
        except xmlrpc.client.Error as error:
            raise SupervisordError(f"{self._address}: {error!r}") from error


def parse_program(answer: object) -> SupervisedProgram:
    """Parses the response of `getProcessInfo`. Raises SupervisordError if it is malformed."""
    try:
        return SupervisedProgram.model_validate(answer)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise SupervisordError(
            f"not a description of a program: {dotted(wrong['loc'])}: {wrong['msg']}"
        ) from error


class Transport(xmlrpc.client.Transport):
    """Reaches a supervisord at a socket or URL; an answer may take `within` seconds."""

    def __init__(self, address: Path | str, account: tuple[str, str] | None, within: float) -> None:
        super().__init__()
        self._address = address
        self._account = account
        self._timeout = within

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        connection = self._connect()
        # The base class closes this connection.
        self._connection = host, connection
        return connection

    def _connect(self) -> http.client.HTTPConnection:
        if isinstance(self._address, Path):
            return UnixConnection(self._address, self._timeout)
        parts = urlsplit(self._address)
        host = parts.hostname or "localhost"
        return http.client.HTTPConnection(host, parts.port, timeout=self._timeout)

    def send_headers(
        self, connection: http.client.HTTPConnection, headers: list[tuple[str, str]]
    ) -> None:
        super().send_headers(connection, headers)
        if self._account is not None:
            credentials = base64.b64encode(":".join(self._account).encode()).decode()
            connection.putheader("Authorization", f"Basic {credentials}")
