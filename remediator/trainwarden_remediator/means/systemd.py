"""A target that is a unit of systemd."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from trainwarden_exporter.units import Name, Seconds
from trainwarden_remediator.means.base import Means
from trainwarden_remediator.means.protection import refuse_protected

UNIT = r"^[A-Za-z0-9][A-Za-z0-9:_.\\-]*(@[A-Za-z0-9:_.\\-]+)?\.service$"
"""A service, of a template with its instance; the characters are those of systemd.unit(5)."""


class SystemdTarget(Means):
    """A worker that is a service of systemd, which is told to restart it.

    One that a person has stopped or masked is left alone, and so is one that systemd itself is
    about to start again by its `Restart=`.
    """

    unit: Annotated[
        str, StringConstraints(pattern=UNIT, max_length=255), AfterValidator(refuse_protected)
    ]
    """The unit, such as `trainwarden-worker@rollout-0.service`."""
    user: Name | None = None
    """The account whose own manager keeps it; the machine's manager when not given."""
    grace: Seconds = 90
    """How long it may take to stop; `TimeoutStopSec=` of the unit says when systemd kills it."""
    starts_within: Annotated[Seconds, Field(gt=0)] = 90
    """How long it may take to start, in the sense of its `Type=`."""
    reset_failed: bool = False
    """Whether it is also started where systemd itself has given up after `StartLimitBurst=`
    starts; without it, a person is needed then."""

    @property
    def told(self) -> str:
        return self.unit

    def doubts(self) -> Iterator[str]:
        if shutil.which("systemctl") is None:
            yield "systemd: there is no systemctl here"
