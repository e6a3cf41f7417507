"""Signs of life of whatever should give them: watchdogs, cron jobs, brakes, trainers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Annotated, NamedTuple

from pydantic import Field

from trainwarden_exporter.exceptions import TrainwardenError
from trainwarden_exporter.statefile import StateFile
from trainwarden_exporter.units import LocalPath, Name, Seconds
from trainwarden_exporter.yamlfile import Section

MOST_STRANGERS = 100
"""Heartbeats that are accepted without having been configured."""

FORGOTTEN_AFTER = 86400.0
"""Seconds of silence after which such a one makes room for another."""


class HeartbeatConfig(Section):
    name: Name
    """Label `name`, and the end of the address: `POST /heartbeat/<name>`."""

    run: Name | None = None
    """Label `run`, empty when not given: the run that it belongs to, whose step it may tell."""

    file: LocalPath | None = None
    """A file that is touched at each beat, where it is not sent."""

    interval: Annotated[Seconds, Field(gt=0)] | None = None
    """The longest time that should pass between two beats; they may say it themselves."""


class HeartbeatKey(NamedTuple):
    run: str
    name: str


@dataclass(frozen=True, slots=True)
class Beats:
    """What came of one heartbeat so far. Moments are Unix seconds; None is not known."""

    count: int = 0
    last: float | None = None
    step: int | None = None
    interval: float | None = None
    """Seconds, as announced by the last beat that said so."""
    touched: float | None = None
    """The last change of its file."""

    def after(self, timestamp: float, *, step: int | None, interval: float | None) -> Beats:
        """With one beat more."""
        return replace(
            self,
            count=self.count + 1,
            last=max(timestamp, self.last or 0.0),
            step=self.step if step is None else step,
            interval=self.interval if interval is None else interval,
        )


class UnknownHeartbeatError(TrainwardenError):
    """No heartbeat of this name is awaited."""


class AmbiguousHeartbeatError(TrainwardenError):
    """Several runs have a heartbeat of this name, and it was not said which is meant."""


class TooManyHeartbeatsError(TrainwardenError):
    """Others that are not configured have taken all the room there is."""


StepSink = Callable[[str, str, int, float], None]
"""Takes the run, the name, the step and the time of a beat that carried a step."""


class Heartbeats:
    """Takes beats, and remembers them. Every method may be called from any thread.

    With `accept_any`, beats of other names are taken too, a bounded number of them. What came is
    kept in `state_folder`, where one is given, whenever `save` is called.
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
        self._configured = {HeartbeatKey(one.run or "", one.name): one for one in configured}
        self._accept_any = accept_any
        self._on_step = on_step
        self._now = now
        self._lock = Lock()
        path = None if state_folder is None else state_folder / "heartbeats.json"
        self._file = StateFile[dict[str, dict[str, Beats]]](
            path, dict[str, dict[str, Beats]], empty={}
        )
        self._loaded = {
            key: beats
            for run, names in self._file.value.items()
            for name, beats in names.items()
            if self._is_wanted(key := HeartbeatKey(run, name))
        }
        self._beats = dict(self._loaded)
        self._awaited = dict.fromkeys(self._configured, now())

    @property
    def configured(self) -> Mapping[HeartbeatKey, HeartbeatConfig]:
        return self._configured

    @property
    def awaited(self) -> Mapping[HeartbeatKey, float]:
        """Since when each configured one is awaited (unix seconds)."""
        return self._awaited

    def adopt(self, predecessor: Heartbeats) -> None:
        """Go on with what `predecessor` has taken."""
        with predecessor._lock:
            before, awaited = dict(predecessor._beats), dict(predecessor._awaited)
        with self._lock:
            for key, beats in before.items():
                if self._is_wanted(key):
                    self._beats[key] = _joined(beats, self._beats.get(key), self._loaded.get(key))
            self._awaited |= {key: since for key, since in awaited.items() if key in self._awaited}

    def beat(
        self,
        name: str,
        run: str | None = None,
        *,
        step: int | None = None,
        interval: float | None = None,
    ) -> HeartbeatKey:
        """Take a beat that came just now. Raises one of the three errors above."""
        key = self._key(name, run)
        now = self._now()
        with self._lock:
            if key not in self._configured and key not in self._beats:
                self._make_room(now)
            beats = self._beats.get(key, Beats())
            self._beats[key] = beats.after(now, step=step, interval=interval)
        if step is not None and key.run:
            self._on_step(key.run, key.name, step, now)
        return key

    def touched(self, key: HeartbeatKey, timestamp: float) -> None:
        """The file of a configured heartbeat was last changed at `timestamp`."""
        timestamp = min(timestamp, self._now())
        with self._lock:
            beats = self._beats.get(key, Beats())
            if beats.touched is None or timestamp > beats.touched:
                beats = beats.after(timestamp, step=None, interval=None)
                self._beats[key] = replace(beats, touched=timestamp)

    def all(self) -> dict[HeartbeatKey, Beats]:
        """What came of each; of those that are configured also where nothing came."""
        with self._lock:
            return {**dict.fromkeys(self._configured, Beats()), **self._beats}

    def save(self) -> None:
        """Keep what is known for a later life of the exporter."""
        kept: dict[str, dict[str, Beats]] = {}
        with self._lock:
            for (run, name), beats in self._beats.items():
                kept.setdefault(run, {})[name] = beats
        self._file.save(kept)

    def _key(self, name: str, run: str | None) -> HeartbeatKey:
        named = [key for key in self._configured if key.name == name]
        meant = named if run is None else [key for key in named if key.run == run]
        if len(meant) == 1:
            return meant[0]
        if meant:
            runs = ", ".join(key.run or "none" for key in meant)
            raise AmbiguousHeartbeatError(f"say which run is meant: {runs}")
        if not self._accept_any:
            raise UnknownHeartbeatError("no such heartbeat is configured")
        return HeartbeatKey(run or "", name)

    def _is_wanted(self, key: HeartbeatKey) -> bool:
        return key in self._configured or self._accept_any

    def _make_room(self, now: float) -> None:
        strangers = {
            key: beats.last or 0.0
            for key, beats in self._beats.items()
            if key not in self._configured
        }
        if len(strangers) < MOST_STRANGERS:
            return
        quietest = min(strangers, key=strangers.__getitem__)
        if now - strangers[quietest] < FORGOTTEN_AFTER:
            raise TooManyHeartbeatsError(f"{MOST_STRANGERS} others are taken already")
        del self._beats[quietest]


def _joined(before: Beats, ours: Beats | None, loaded: Beats | None) -> Beats:
    """All that came to `before`, and what came to `ours` since that was `loaded`."""
    if ours is None or ours == loaded:
        return before
    fresh = ours.count - (loaded.count if loaded is not None else 0)
    newer = ours if (ours.last or 0.0) >= (before.last or 0.0) else before
    return replace(newer, count=before.count + fresh)
