"""Restart method `supervisor`: a supervisord program."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainwarden_exporter.config_file.loader import LocatedError
from trainwarden_exporter.config_file.types import LocalPath, Name, Seconds
from trainwarden_remediator.config.restart_methods.base import (
    RestartMethod,
    is_socket,
    refuse_protected,
)

PROGRAM = r"^[A-Za-z0-9][A-Za-z0-9_.-]*(:[A-Za-z0-9][A-Za-z0-9_.-]*)?$"
"""A program, or a process of a group."""

_LOCAL = r"^http://(127\.0\.0\.1|localhost|\[::1\]):\d{1,5}$"


class SupervisorTarget(RestartMethod):
    """A worker that is a program of supervisord; supervisord stops and starts it.

    The remediator does not act on a program that an operator stopped, or that supervisord is about
    to start again.
    """

    renamed_keys: ClassVar[Mapping[str, str]] = {"starts_within": "start_timeout"}

    program: Annotated[
        str, StringConstraints(pattern=PROGRAM, max_length=200), AfterValidator(refuse_protected)
    ]
    """The name of the program, `group:name` for a process of a group."""
    socket: LocalPath = Path("/var/run/supervisor.sock")
    """The Unix socket of supervisord (`[unix_http_server]`)."""
    url: Annotated[str, StringConstraints(pattern=_LOCAL)] | None = None
    """The loopback URL of supervisord (`[inet_http_server]`), instead of the socket."""
    username: Name | None = None
    """The user name for supervisord, if it requires authentication."""
    password_file: LocalPath | None = None
    """The file with the password of `username`; read again for each request."""
    grace: Seconds = 30
    """How long the program may take to stop; its `stopwaitsecs` sets when it is killed."""
    start_timeout: Annotated[Seconds, Field(gt=0)] = 60
    """How long the program may take to start; it counts as started after its `startsecs`."""

    @property
    def summary(self) -> str:
        return f"program {self.program}"

    def warnings(self) -> Iterator[str]:
        if self.url is None and not is_socket(self.socket):
            yield f"supervisor.socket: no supervisord listens at {self.socket}"
        if self.password_file is not None and not os.access(self.password_file, os.R_OK):
            yield f"supervisor.password_file: cannot be read: {self.password_file}"

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.url is not None and "socket" in self.model_fields_set:
            raise LocatedError("set either socket or url, not both", "url")
        if (self.username is None) != (self.password_file is None):
            raise LocatedError(
                "username and password_file must be set together",
                "password_file" if self.password_file else "username",
            )
        return self
