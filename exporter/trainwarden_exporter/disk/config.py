"""Configuration of disks."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import AfterValidator, Field

from trainwarden_exporter.config_file.loader import Section, unique_by
from trainwarden_exporter.config_file.types import Bytes, LocalPath, Seconds, Space


class ProbeConfig(Section):
    """Periodic write probe: writes, syncs and removes a small file."""

    interval: Annotated[Seconds, Field(ge=1)] = 300
    """Time between two probes."""

    size: Annotated[Bytes, Field(ge=1 << 20, le=1 << 30)] = 16 << 20
    """Bytes to write; skipped unless twice as much and 5 % of the disk are free."""

    speed_floor: Annotated[Space, Field(ge=0)] = 100_000_000
    """Minimum write speed in bytes per second."""


class DiskConfig(Section):
    path: LocalPath
    """Label `path`: a folder on the disk."""

    free_floor: Annotated[Space, Field(ge=0)] | None = None
    """Minimum free space; default: 5 % of the disk, at most 20 GiB."""

    probe: ProbeConfig | None = None
    """Write probe that measures the speed; default: none. `{}` enables it with its defaults."""


Disks = Annotated[
    tuple[DiskConfig, ...], AfterValidator(partial(unique_by, field="path", noun="disk"))
]
