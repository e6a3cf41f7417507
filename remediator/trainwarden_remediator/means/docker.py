"""A target that is a container of Docker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from trainwarden_exporter.units import LocalPath, Seconds
from trainwarden_remediator.means.base import Means, is_socket
from trainwarden_remediator.means.protection import refuse_protected

CONTAINER = r"^[a-zA-Z0-9][a-zA-Z0-9_.-]+$"
"""What Docker allows as the name of a container."""


class DockerTarget(Means):
    """A worker that is a container, which Docker is told to restart.

    One that a person has stopped, paused or removed is left alone, and so is one that Docker itself
    is about to start again by its restart policy.
    """

    container: Annotated[
        str,
        StringConstraints(pattern=CONTAINER, max_length=128),
        AfterValidator(refuse_protected),
    ]
    """Its name. No id: one that is made anew has another."""
    socket: LocalPath = Path("/var/run/docker.sock")
    """Where the engine listens. Whoever may write to it is as good as root."""
    grace: Annotated[Seconds, Field(le=3600)] = 30
    """Seconds between its stop signal and SIGKILL."""

    @property
    def told(self) -> str:
        return f"container {self.container}"

    def doubts(self) -> Iterator[str]:
        if not is_socket(self.socket):
            yield f"docker.socket: no engine listens at {self.socket}"
