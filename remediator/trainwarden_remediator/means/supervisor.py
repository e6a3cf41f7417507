"""A target that is a program of supervisord."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainwarden_exporter.units import LocalPath, Name, Seconds
from trainwarden_exporter.yamlfile import MisplacedError
from trainwarden_remediator.means.base import Means, is_socket
from trainwarden_remediator.means.protection import refuse_protected

PROGRAM = r"^[A-Za-z0-9][A-Za-z0-9_.-]*(:[A-Za-z0-9][A-Za-z0-9_.-]*)?$"
"""A program, or one process of a group."""

_LOCAL = r"^http://(127\.0\.0\.1|localhost|\[::1\]):\d{1,5}$"


class SupervisorTarget(Means):
    """A worker that is a program of supervisord, which is told to stop and start it.

    One that a person has stopped is left alone, and so is one that supervisord itself is about to
    start again.
    """

    program: Annotated[
        str, StringConstraints(pattern=PROGRAM, max_length=200), AfterValidator(refuse_protected)
    ]
    """Its name, `group:name` where it is one of a group."""
    socket: LocalPath = Path("/var/run/supervisor.sock")
    """Where supervisord listens (`[unix_http_server]`)."""
    url: Annotated[str, StringConstraints(pattern=_LOCAL)] | None = None
    """In place of the socket: where it listens by TCP on this box (`[inet_http_server]`)."""
    username: Name | None = None
    """The account it asks for, if it does."""
    password_file: LocalPath | None = None
    """The password of that account; read anew each time."""
    grace: Seconds = 30
    """How long it may take to stop; `stopwaitsecs` of the program says when it is killed."""
    starts_within: Annotated[Seconds, Field(gt=0)] = 60
    """How long it may take to start; it counts as started after its `startsecs`."""

    @property
    def told(self) -> str:
        return f"program {self.program}"

    def doubts(self) -> Iterator[str]:
        if self.url is None and not is_socket(self.socket):
            yield f"supervisor.socket: no supervisord listens at {self.socket}"
        if self.password_file is not None and not os.access(self.password_file, os.R_OK):
            yield f"supervisor.password_file: cannot be read: {self.password_file}"

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.url is not None and "socket" in self.model_fields_set:
            raise MisplacedError("either socket or url", "url")
        if (self.username is None) != (self.password_file is None):
            raise MisplacedError(
                "username and password_file go together",
                "password_file" if self.password_file else "username",
            )
        return self
