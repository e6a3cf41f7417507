"""Restart method `docker`: a Docker container."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from trainwarden_exporter.config_file.types import LocalPath, Seconds
from trainwarden_remediator.config.restart_methods.base import (
    RestartMethod,
    is_socket,
    refuse_protected,
)

CONTAINER = r"^[a-zA-Z0-9][a-zA-Z0-9_.-]+$"
"""The container names that Docker allows."""


class DockerTarget(RestartMethod):
    """A worker that runs in a Docker container; the Docker Engine restarts it.

    The remediator does not act on a container that an operator stopped, paused or removed, or that
    Docker is about to start again by its restart policy.
    """

    container: Annotated[
        str, StringConstraints(pattern=CONTAINER, max_length=128), AfterValidator(refuse_protected)
    ]
    """The name of the container; not its ID, which changes when the container is recreated."""
    socket: LocalPath = Path("/var/run/docker.sock")
    """The socket of the Docker Engine. Write access to it is equivalent to root."""
    grace: Annotated[Seconds, Field(le=3600)] = 30
    """Seconds between the container's stop signal and SIGKILL."""

    @property
    def summary(self) -> str:
        return f"container {self.container}"

    def warnings(self) -> Iterator[str]:
        if not is_socket(self.socket):
            yield f"docker.socket: no Docker Engine listens at {self.socket}"
