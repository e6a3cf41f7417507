"""Restart method `systemd`: a systemd service."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, StringConstraints

from trainwarden_exporter.config_file.types import Name, Seconds
from trainwarden_remediator.config.restart_methods.base import RestartMethod, refuse_protected

UNIT = r"^[A-Za-z0-9][A-Za-z0-9:_.\\-]*(@[A-Za-z0-9:_.\\-]+)?\.service$"
"""A service, with its instance if it comes from a template (systemd.unit(5))."""


class SystemdTarget(RestartMethod):
    """A worker that is a systemd service; systemd restarts it.

    The remediator does not act on a service that an operator stopped or masked, or that systemd is
    about to start again by its `Restart=`.
    """

    renamed_keys: ClassVar[Mapping[str, str]] = {"starts_within": "start_timeout"}

    unit: Annotated[
        str, StringConstraints(pattern=UNIT, max_length=255), AfterValidator(refuse_protected)
    ]
    """The name of the unit, such as `trainwarden-worker@rollout-0.service`."""
    user: Name | None = None
    """The account whose user manager runs the unit; default: the system manager."""
    grace: Seconds = 90
    """How long the unit may take to stop; its `TimeoutStopSec=` sets when systemd kills it."""
    start_timeout: Annotated[Seconds, Field(gt=0)] = 90
    """How long the unit may take to start, as its `Type=` defines it."""
    reset_failed: bool = False
    """Whether to start the unit even if it has reached its start limit (`StartLimitBurst=`).
    Otherwise an operator has to reset it."""

    @property
    def summary(self) -> str:
        return self.unit

    def warnings(self) -> Iterator[str]:
        if shutil.which("systemctl") is None:
            yield "systemd: systemctl not found"
