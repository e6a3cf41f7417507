"""Configuration of the host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from trainwarden_exporter.config_file.loader import Section
from trainwarden_exporter.config_file.types import LocalPath, Space

CGROUP_ROOT = Path("/sys/fs/cgroup")

Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class HostConfig(Section):
    memory_available_floor: Annotated[Space, Field(ge=0)] | None = None
    """Minimum available memory; default: 8 % of the total, at most 8 GiB."""

    cgroup: LocalPath | None = None
    """The cgroup of the training; default: the root of the cgroup mount, which in a container
    is the container's own cgroup."""

    price_per_hour: Price | None = None
    """Price of this host for an hour, in any currency; each of its GPUs has an equal share."""

    price_per_gpu_hour: Price | None = None
    """Price of one of its GPUs for an hour; takes precedence."""
