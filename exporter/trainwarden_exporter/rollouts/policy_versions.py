"""Policy versions from log lines: version on each side, and lag."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from trainwarden_exporter.logs.events import LineEvent

_GROUPS = ("trainer_version", "rollout_version", "staleness")


class ReportedVersion(NamedTuple):
    """A number from a line, and its time (Unix seconds)."""

    value: float
    timestamp: float


@dataclass(frozen=True, slots=True)
class PolicyVersions:
    """Last reported versions of a run."""

    trainer: ReportedVersion | None = None
    rollout: ReportedVersion | None = None
    staleness: ReportedVersion | None = None

    @property
    def lag(self) -> float | None:
        """Returns the steps by which the rollout side lags, as reported or from both versions."""
        if self.trainer is None or self.rollout is None:
            return None if self.staleness is None else self.staleness.value
        reported = self.staleness
        if reported is not None and reported.timestamp >= max(self.trainer[1], self.rollout[1]):
            return reported.value
        return max(0.0, self.trainer.value - self.rollout.value)

    def updated(self, groups: Mapping[str, str], timestamp: float) -> PolicyVersions:
        """Returns the versions after a line with `groups`. Ignores lines older than the last."""
        known = zip((self.trainer, self.rollout, self.staleness), _GROUPS, strict=True)
        return PolicyVersions(*(_newer(one, groups.get(name), timestamp) for one, name in known))


class PolicyVersionRegistry:
    """Policy versions of all runs. Fast and thread-safe."""

    def __init__(self) -> None:
        self._runs: dict[str, PolicyVersions] = {}
        self._lock = Lock()

    def record_line(self, event: LineEvent) -> None:
        """Records a log line; a sink of the log follower."""
        if not any(group in event.groups for group in _GROUPS):
            return
        with self._lock:
            known = self._runs.get(event.run, PolicyVersions())
            self._runs[event.run] = known.updated(event.groups, event.timestamp)

    def get(self, run: str) -> PolicyVersions:
        with self._lock:
            return self._runs.get(run, PolicyVersions())

    def take_over_from(self, other: PolicyVersionRegistry) -> None:
        """Takes over the versions of `other`, which are newer."""
        with other._lock:
            known = dict(other._runs)
        with self._lock:
            self._runs |= known


def _newer(
    known: ReportedVersion | None, text: str | None, timestamp: float
) -> ReportedVersion | None:
    if text is None or (known is not None and timestamp < known.timestamp):
        return known
    try:
        value = float(text)
    except ValueError:
        return known
    return ReportedVersion(value, timestamp) if math.isfinite(value) else known
