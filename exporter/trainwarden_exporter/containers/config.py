"""The sections `containers` and `docker` of exporter.yml."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainwarden_exporter.config_file.loader import LocatedError, Section, unique_by
from trainwarden_exporter.config_file.types import LocalPath, Name


class DockerConfig(Section):
    """The Docker engine of the machine."""

    socket: LocalPath = Path("/var/run/docker.sock")
    """Path of the Docker socket. Access to this socket is equivalent to root."""


class ContainerConfig(Section):
    """A container: a Docker container by name, or the container in which the exporter runs."""

    name: Name
    """Label `container`."""

    docker: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] | None = None
    """Name of the container in Docker."""

    own: Annotated[bool, Field(alias="self")] = False
    """Whether this is the container that the exporter runs in. Its starts are counted in
    `state_folder`, which must be on a volume used only by this container."""

    exit_file: LocalPath | None = None
    """File in which the container's start command records each exit, to be read at the next
    start: exit code in the first line, last output in the last line."""

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if self.own == (self.docker is not None):
            raise ValueError("either `docker: NAME` or `self: true` is required")
        if self.exit_file is not None and not self.own:
            raise LocatedError(
                "only for `self: true`: Docker reports exits of other containers", "exit_file"
            )
        return self


Containers = Annotated[
    tuple[ContainerConfig, ...], AfterValidator(partial(unique_by, field="name", noun="container"))
]


class ContainerKey(NamedTuple):
    """Configured names of a run and its container."""

    run: str
    container: str


def history_path(folder: Path | None, key: ContainerKey) -> Path | None:
    return None if folder is None else folder / "containers" / key.run / f"{key.container}.json"
