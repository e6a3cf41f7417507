"""The local brake's section of the configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainwarden_exporter.units import Bytes, Seconds
from trainwarden_exporter.yamlfile import Section


class LocalBrake(Section):
    """What the remediator does by itself about a lack of memory, once no alerts come any more."""

    enabled: bool = True
    """Whether it may. That the alerts have fallen silent is told either way."""
    silence: Annotated[Seconds, Field(gt=0)] = 120
    """The alert that always fires must have failed to come for this long: the shipped rules and
    Alertmanager send it every 15 s."""
    patience: Annotated[Seconds, Field(gt=0)] = 30
    """Memory must have been below the exporter's floor for this long,"""
    stalled_patience: Annotated[Seconds, Field(gt=0)] = 10
    """or for this long, where processes wait for it meanwhile (by the kernel's pressure
    figures)."""
    reserve: Annotated[Bytes, Field(le=1 << 30)] = 16 << 20
    """Memory that is set aside at the start and given back before it acts, so that it can."""
