"""Registry of heartbeats of watchdogs, cron jobs, trainers and similar programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Annotated, NamedTuple

from pydantic import Field

from trainwarden_exporter.config_file.loader import Section
from trainwarden_exporter.config_file.types import LocalPath, Name, Seconds
from trainwarden_exporter.exceptions import TrainwardenError
from trainwarden_exporter.runtime.state_file import StateFile

MAX_UNCONFIGURED = 100
"""Maximum number of unconfigured heartbeats."""

FORGET_AFTER_SECONDS = 86400.0
"""Seconds of silence after which an unconfigured heartbeat may be replaced by another."""


class HeartbeatConfig(Section):
    name: Name
    """Label `name`, and the end of the URL: `POST /heartbeat/<name>`."""

    run: Name | None = None
    """Label `run`; empty by default. The run that the heartbeat belongs to and whose step it
    may report.
    """

    file: LocalPath | None = None
    """A file that is touched at each beat, instead of a POST."""

    interval: Annotated[Seconds, Field(gt=0)] | None = None
    """Maximum time between two beats; default: as announced by the beats."""


class HeartbeatKey(NamedTuple):
    run: str
    name: str


@dataclass(frozen=True, slots=True)
class HeartbeatState:
    """State of one heartbeat. Times are Unix seconds; None means unknown."""

    count: int = 0
    last: float | None = None
    step: int | None = None
    interval: float | None = None
    """Seconds, from the last beat that announced an interval."""
    touched: float | None = None
    """Last change of its file, which may be of a time to come."""

    def with_beat(
        self, timestamp: float, *, step: int | None, interval: float | None
    ) -> HeartbeatState:
        """Returns the state after one more beat."""
        return replace(
            self,
            count=self.count + 1,
            last=max(timestamp, self.last or 0.0),
            step=self.step if step is None else step,
            interval=self.interval if interval is None else interval,
        )


class UnknownHeartbeatError(TrainwardenError):
    """No heartbeat of this name is configured."""


class AmbiguousHeartbeatError(TrainwardenError):
    """Several runs have a heartbeat of this name, and the request names no run."""


class TooManyHeartbeatsError(TrainwardenError):
    """The maximum number of unconfigured heartbeats is reached."""


StepSink = Callable[[str, str, int, float], None]
"""Receives run, name, step and time of a beat with a step."""


class HeartbeatRegistry:
    """Records beats. All methods are thread-safe.

    With `accept_any`, a bounded number of other names is accepted too. `save` stores the state in
    `state_folder`, if configured.
    """

    def __init__(
        self,
        configured: Iterable[HeartbeatConfig] = (),
        *,
        accept_any: bool = False,
        state_folder: Path | None = None,
        on_step: StepSink = lambda *_: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.configured = {HeartbeatKey(one.run or "", one.name): one for one in configured}
        self._accept_any = accept_any
        self._on_step = on_step
        self._now = now
        self._lock = Lock()
        path = None if state_folder is None else state_folder / "heartbeats.json"
        self._file = StateFile[dict[str, dict[str, HeartbeatState]]](
            path, dict[str, dict[str, HeartbeatState]], empty={}
        )
        self._loaded = {
            key: beats
            for run, names in self._file.value.items()
            for name, beats in names.items()
            if self._is_wanted(key := HeartbeatKey(run, name))
        }
        self._beats = dict(self._loaded)
        self.awaited_since = dict.fromkeys(self.configured, now())
        """Since when each configured heartbeat is expected (Unix seconds)."""

    def take_over_from(self, predecessor: HeartbeatRegistry) -> None:
        with predecessor._lock:
            before, awaited_since = dict(predecessor._beats), dict(predecessor.awaited_since)
        with self._lock:
            for key, beats in before.items():
                if self._is_wanted(key):
                    self._beats[key] = _merge(beats, self._beats.get(key), self._loaded.get(key))
            self.awaited_since |= {
                key: since for key, since in awaited_since.items() if key in self.awaited_since
            }

    def record(
        self,
        name: str,
        run: str | None = None,
        *,
        step: int | None = None,
        interval: float | None = None,
    ) -> HeartbeatKey:
        """Records a beat received now. Raises one of the three errors above."""
        key = self._key(name, run)
        now = self._now()
        with self._lock:
            self._follow_clock(now)
            if key not in self.configured and key not in self._beats:
                self._make_room(now)
            beats = self._beats.get(key, HeartbeatState())
            self._beats[key] = beats.with_beat(now, step=step, interval=interval)
        if step is not None and key.run:
            self._on_step(key.run, key.name, step, now)
        return key

    def record_file_change(self, key: HeartbeatKey, timestamp: float) -> None:
        """Records that the file of a configured heartbeat was changed at `timestamp`."""
        now = self._now()
        with self._lock:
            self._follow_clock(now)
            beats = self._beats.get(key, HeartbeatState())
            touched = beats.touched
            is_later = touched is None or timestamp > touched or touched > now
            if timestamp != touched and is_later:
                beats = beats.with_beat(min(timestamp, now), step=None, interval=None)
                self._beats[key] = replace(beats, touched=timestamp)

    def _follow_clock(self, now: float) -> None:
        """Counts times to come from `now`: the clock was set back since.

        The silence after them would otherwise not be seen until the clock is there again.
        """
        for key, beats in self._beats.items():
            if beats.last is not None and beats.last > now:
                self._beats[key] = replace(beats, last=now)
        for key, since in self.awaited_since.items():
            self.awaited_since[key] = min(since, now)

    def all(self) -> dict[HeartbeatKey, HeartbeatState]:
        """Returns all states, including configured heartbeats without a beat."""
        with self._lock:
            self._follow_clock(self._now())
            return {**dict.fromkeys(self.configured, HeartbeatState()), **self._beats}

    def save(self) -> None:
        """Stores the state for the next start of the exporter."""
        saved: dict[str, dict[str, HeartbeatState]] = {}
        with self._lock:
            for (run, name), beats in self._beats.items():
                saved.setdefault(run, {})[name] = beats
        self._file.save(saved)

    def _key(self, name: str, run: str | None) -> HeartbeatKey:
        named = [key for key in self.configured if key.name == name]
        candidates = named if run is None else [key for key in named if key.run == run]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            runs = ", ".join(key.run or "none" for key in candidates)
            raise AmbiguousHeartbeatError(f"parameter run required, one of: {runs}")
        if not self._accept_any:
            raise UnknownHeartbeatError("no such heartbeat is configured")
        return HeartbeatKey(run or "", name)

    def _is_wanted(self, key: HeartbeatKey) -> bool:
        return key in self.configured or self._accept_any

    def _make_room(self, now: float) -> None:
        unconfigured = {
            key: beats.last or 0.0
            for key, beats in self._beats.items()
            if key not in self.configured
        }
        if len(unconfigured) < MAX_UNCONFIGURED:
            return
        quietest = min(unconfigured, key=unconfigured.__getitem__)
        if now - unconfigured[quietest] < FORGET_AFTER_SECONDS:
            raise TooManyHeartbeatsError(
                f"limit of {MAX_UNCONFIGURED} unconfigured heartbeats reached"
            )
        del self._beats[quietest]


def _merge(
    before: HeartbeatState, ours: HeartbeatState | None, loaded: HeartbeatState | None
) -> HeartbeatState:
    """Merges `before` with the changes of `ours` since it was `loaded`."""
    if ours is None or ours == loaded:
        return before
    fresh = ours.count - (loaded.count if loaded is not None else 0)
    newer = ours if (ours.last or 0.0) >= (before.last or 0.0) else before
    return replace(newer, count=before.count + fresh)
