"""Sections of remediator.yml that limit the remediator: failsafe, journal, circuit breaker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from trainwarden_exporter.config_file.loader import Section
from trainwarden_exporter.config_file.types import Bytes, Seconds


class FailsafeSettings(Section):
    """Relieves a memory shortage without alerts, when Alertmanager is silent."""

    renamed_keys: ClassVar[Mapping[str, str]] = {
        "silence": "watchdog_timeout",
        "patience": "shortage_duration",
        "stalled_patience": "stalled_shortage_duration",
    }

    enabled: bool = True
    """Whether the remediator acts without alerts. It reports the silence in either case."""
    watchdog_timeout: Annotated[Seconds, Field(gt=0)] = 120
    """How long the always-firing alert must be absent before Alertmanager counts as silent. The
    shipped rules and Alertmanager send it every 15 s."""
    shortage_duration: Annotated[Seconds, Field(gt=0)] = 30
    """How long available memory must be below the exporter's floor before the failsafe acts."""
    stalled_shortage_duration: Annotated[Seconds, Field(gt=0)] = 10
    """The same, while processes are stalled waiting for memory (by the kernel's pressure stall
    information)."""
    reserve: Annotated[Bytes, Field(le=1 << 30)] = 16 << 20
    """Memory that the remediator allocates when it starts and releases before the failsafe acts, so
    that it can act at all."""


KEEP_UNTREATED_SECONDS = 3600.0
"""Minimum time to keep a closed incident without actions, however large the journal is."""

KEEP_TREATED_SECONDS = 7 * 86400.0
"""Minimum time to keep a closed incident with actions, however large the journal is."""


class JournalLimits(Section):
    """Retention of the journal. Open incidents, and actions that still count, are always kept."""

    age: Annotated[Seconds, Field(ge=86400)] = 90 * 86400.0
    """How long closed incidents are kept and available to `report`."""
    size: Annotated[Bytes, Field(ge=1 << 20)] = 512 << 20
    """Maximum size of the journal. Above it, the oldest incidents are deleted before `age`: first
    those without actions, an hour after they closed, then those with actions, once a week old. The
    file does not shrink; its free space is reused."""


MIN_ACTIONS = 6
"""The least default limit, for a host with few targets."""


class BreakerSettings(Section):
    """The circuit breaker: stops all actions on this host after too many of them."""

    renamed_keys: ClassVar[Mapping[str, str]] = {"within": "window"}

    actions: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Maximum number of actions on all targets together within `window`. When one more is needed,
    the remediator takes none until `trainwarden resume`. Default: twice the number of targets, at
    least 6. GPU cleanups and notifications continue. The runs that another account announces have a
    count and a maximum of their own, for that account: of one more action on them, the operator is
    notified (`gave_up`)."""
    window: Annotated[Seconds, Field(gt=0)] = 3600
    """Time window over which actions are counted."""

    def limit(self, targets: int) -> int:
        """Returns the maximum number of actions on so many targets."""
        return self.actions or max(MIN_ACTIONS, 2 * targets)
