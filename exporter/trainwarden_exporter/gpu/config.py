"""The section `gpu` of exporter.yml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from trainwarden_exporter.config_file.loader import Section
from trainwarden_exporter.config_file.types import LocalPath
from trainwarden_exporter.processes.selector import SelectivePattern


class GpuConfig(Section):
    expected: Annotated[int, Field(ge=0)] | None = None
    """Expected number of GPUs; default: those found by the driver or on the PCI bus."""

    shared: bool = True
    """Whether processes share a GPU; if so, an exclusive compute mode is a problem."""

    protected: tuple[SelectivePattern, ...] = ()
    """Regular expressions searched in command lines: matching processes may hold a GPU without
    being a worker. Display servers, NVIDIA's services and known monitoring tools need not be
    listed."""

    device_root: LocalPath = Path("/dev")
    """Folder of the driver's device files."""
