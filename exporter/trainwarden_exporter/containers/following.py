"""Follows one container of a Docker engine from look to look."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from trainwarden_exporter import starts
from trainwarden_exporter.containers.docker import EngineError, EngineState
from trainwarden_exporter.containers.dockerformat import Event, Health, Inspection, State
from trainwarden_exporter.containers.lastline import last_line, steady
from trainwarden_exporter.containers.past import Past
from trainwarden_exporter.statefile import StateFile

log = logging.getLogger(__name__)

_TAILS = (50, 2000)
_GAP = 60.0
"""Seconds without a look after which the engine's memory of events may not reach back."""
_OVERLAP = 0.001
_PAUSE = 0.09
"""Seconds after an end in which nothing is printed by the next run: the engine waits for 0.1."""


class Asked(Protocol):
    """An engine; see `docker.Engine`."""

    def inspect(self, name: str) -> Inspection | None: ...
    def events(self, name: str, since: float, until: float) -> tuple[Event, ...]: ...
    def log(self, name: str, *, tail: int, tty: bool) -> list[tuple[float, str]]: ...


@dataclass(frozen=True, slots=True)
class Sighting:
    """A container as it was seen; None for what is not known, as while its engine is away."""

    past: Past
    engine: EngineState | None = None
    """Of the engine; None where none is asked."""
    state: State | Literal["absent"] | None = None
    started: float | None = None
    restarts: int | None = None
    health: Health | None = None


class Follower:
    """Looks at the container `name` at each call, and keeps in `state` what it saw.

    The engine's events tell of each start and end since the look before, also of what happened
    while this program did not run; and what they do not reach, its count of restarts does.
    """

    def __init__(
        self,
        engine: Asked,
        name: str,
        state: StateFile[Past],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._name = name
        self._state = state
        self._now = now
        self._engine_state: EngineState = "ok"
        self._last_look = -math.inf

    def __call__(self) -> Sighting:
        """Look once. An engine that cannot be asked is no exception, but a state of it."""
        try:
            sighting = self._look()
        except EngineError as error:
            self._tell(error.state, str(error))
            self._last_look = -math.inf
            return Sighting(self._state.value, engine=error.state)
        self._tell("ok", "")
        self._state.save(sighting.past)
        return sighting

    def _look(self) -> Sighting:
        before, now = self._state.value, self._now()
        if before.event > now:  # the clock was set back: what comes now must not look old
            before = replace(before, event=now)
        since = before.event - _OVERLAP if before.event else now - starts.WINDOW
        events = self._engine.events(self._name, since, now)
        past = before.after(events, now)
        # after the events, so that it is as new as they are
        seen = self._engine.inspect(self._name)
        gap = not 0 <= now - self._last_look < _GAP
        self._last_look = now
        if seen is None:
            return Sighting(past, "ok", "absent")
        if gap and not _reaches_back(events, before, seen):
            told = [
                e.timestamp for e in events if e.action == "start" and e.timestamp > before.event
            ]
            past = past.caught_up(seen, before=before, told=told, asked=now)
        past = replace(past, id=seen.id, counted=seen.starts)
        if past.exit_timestamp not in (None, before.exit_timestamp):
            past = replace(past, line=self._last_line(before, past, events, seen))
        if past != before or now - past.looked >= _GAP:
            past = replace(past, looked=now)
        return Sighting(past, "ok", seen.state, seen.started, seen.restart_count, seen.health)

    def _last_line(
        self, before: Past, past: Past, events: tuple[Event, ...], seen: Inspection
    ) -> str:
        """The last line of the run that ended last: of what was printed since the end before."""
        end = past.exit_timestamp or -math.inf
        ends = [event.timestamp for event in events if event.action == "die"]
        earlier = [moment for moment in (*ends, before.exit_timestamp or -math.inf) if moment < end]
        since = max(earlier, default=-math.inf)
        for tail in _TAILS:
            lines = self._engine.log(self._name, tail=tail, tty=seen.tty)
            said = last_line(line for moment, line in lines if since < moment < end + _PAUSE)
            if said or len(lines) < tail:
                break
        return steady(said, before.line)

    def _tell(self, state: EngineState, message: str) -> None:
        """Log a change of state, once."""
        if state == self._engine_state:
            return
        self._engine_state = state
        facts = {"container": self._name, "state": state, "error": message}
        if state == "ok":
            log.info("docker engine answers", extra={"container": self._name})
        else:
            log.warning("docker engine cannot be asked", extra=facts)


def _reaches_back(events: tuple[Event, ...], before: Past, seen: Inspection) -> bool:
    """Whether the engine still knows what was known before, or the beginning of it all."""
    return any(
        event.timestamp <= before.event or (event.action, event.id) == ("create", seen.id)
        for event in events
    )
