"""Configuration of the host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from trainwarden_exporter.config_file.loader import Section
from trainwarden_exporter.config_file.types import Bytes, LocalPath

CGROUP_ROOT = Path("/sys/fs/cgroup")


class HostConfig(Section):
    memory_available_floor: Annotated[Bytes, Field(ge=0)] | None = None
    """Minimum available memory; default: 8 % of the total, at most 8 GiB."""

    cgroup: LocalPath | None = None
    """The cgroup of the training; default: the root of the cgroup mount, which in a container
    is the container's own cgroup."""
