"""What log lines tell of the policy: its version on either side, and how far they are apart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import NamedTuple

from trainwarden_exporter.logs.events import LineEvent

_GROUPS = ("trainer_version", "rollout_version", "staleness")


class Said(NamedTuple):
    """A number that a line told, and when (unix seconds)."""

    value: float
    timestamp: float


@dataclass(frozen=True, slots=True)
class Versions:
    """The last that was told of a run."""

    trainer: Said | None = None
    rollout: Said | None = None
    staleness: Said | None = None

    @property
    def apart(self) -> float | None:
        """By how many steps the rollout side is behind: as told, else by the two versions."""
        if self.trainer is None or self.rollout is None:
            return None if self.staleness is None else self.staleness.value
        told = self.staleness
        if told is not None and told.timestamp >= max(self.trainer[1], self.rollout[1]):
            return told.value
        return max(0.0, self.trainer.value - self.rollout.value)

    def after(self, groups: Mapping[str, str], timestamp: float) -> Versions:
        """With a line of `timestamp` that told `groups`. A line older than the last counts not."""
        trainer, rollout, staleness = (
            _later(said, groups.get(group), timestamp)
            for said, group in zip(
                (self.trainer, self.rollout, self.staleness), _GROUPS, strict=True
            )
        )
        return replace(self, trainer=trainer, rollout=rollout, staleness=staleness)


class VersionBook:
    """Keeps the versions of all runs. For any thread; what it does is quick."""

    def __init__(self) -> None:
        self._runs: dict[str, Versions] = {}
        self._lock = Lock()

    def note_line(self, event: LineEvent) -> None:
        """Take into account what a log line told; a sink of the log follower."""
        if not any(group in event.groups for group in _GROUPS):
            return
        with self._lock:
            known = self._runs.get(event.run, Versions())
            self._runs[event.run] = known.after(event.groups, event.timestamp)

    def of(self, run: str) -> Versions:
        """What is known of `run`."""
        with self._lock:
            return self._runs.get(run, Versions())

    def learn(self, other: VersionBook) -> None:
        """Take over what `other` knows; of the same run, it is newer."""
        with other._lock:
            known = dict(other._runs)
        with self._lock:
            self._runs |= known


def _later(said: Said | None, text: str | None, timestamp: float) -> Said | None:
    if text is None or (said is not None and timestamp < said.timestamp):
        return said
    try:
        value = float(text)
    except ValueError:
        return said
    return Said(value, timestamp) if math.isfinite(value) else said
