"""Follows one container of a Docker engine between polls."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from trainwarden_exporter.containers.docker_api import Event, Health, Inspection, State
from trainwarden_exporter.containers.docker_client import DockerEngineState, DockerError
from trainwarden_exporter.containers.history import ContainerHistory, last_line, stabilise
from trainwarden_exporter.processes import restart_loop
from trainwarden_exporter.runtime.state_file import StateFile

log = logging.getLogger(__name__)

_TAILS = (50, 2000)
_MAX_GAP_SECONDS = 60.0
"""Seconds without a poll after which the engine's events may be incomplete."""
_OVERLAP = 0.001
_LINE_TOLERANCE_SECONDS = 0.09
"""Seconds after an exit in which the next run prints nothing: the engine waits for 0.1."""


class DockerApi(Protocol):
    """A Docker engine; see `docker_client.DockerClient`."""

    def inspect(self, name: str) -> Inspection | None: ...
    def events(self, name: str, since: float, until: float) -> tuple[Event, ...]: ...
    def log(self, name: str, *, tail: int, tty: bool) -> list[tuple[float, str]]: ...


@dataclass(frozen=True, slots=True)
class ContainerObservation:
    """State of a container; None for unknown values."""

    history: ContainerHistory
    engine: DockerEngineState | None = None
    """State of the engine; None without an engine."""
    state: State | Literal["absent"] | None = None
    started: float | None = None
    restarts: int | None = None
    health: Health | None = None


class ContainerFollower:
    """Observes the container `name` at each call, and stores its history in `state`.

    The engine's events report each start and exit since the previous poll, even while this program
    did not run; its restart count covers what the events no longer contain.
    """

    def __init__(
        self,
        engine: DockerApi,
        name: str,
        state: StateFile[ContainerHistory],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._name = name
        self._state = state
        self._now = now
        self._engine_state: DockerEngineState = "ok"
        self._last_observed_at = -math.inf

    def __call__(self) -> ContainerObservation:
        """Observes once. An unavailable engine is a state, not an exception."""
        try:
            sighting = self._observe()
        except DockerError as error:
            self._log_state(error.state, str(error))
            self._last_observed_at = -math.inf
            return ContainerObservation(self._state.value, engine=error.state)
        self._log_state("ok", "")
        self._state.save(sighting.history)
        return sighting

    def _observe(self) -> ContainerObservation:
        before, now = self._state.value, self._now()
        if before.event > now:  # the clock was set back: what comes now must not look old
            before = replace(before, event=now)
        since = before.event - _OVERLAP if before.event else now - restart_loop.WINDOW_SECONDS
        events = self._engine.events(self._name, since, now)
        history = before.add_events(events, now)
        # after the events, to be as recent as they are
        seen = self._engine.inspect(self._name)
        gap = not 0 <= now - self._last_observed_at < _MAX_GAP_SECONDS
        self._last_observed_at = now
        if seen is None:
            return ContainerObservation(history, "ok", "absent")
        if gap and not _reaches_back(events, before, seen):
            reported = [
                e.timestamp for e in events if e.action == "start" and e.timestamp > before.event
            ]
            history = history.catch_up(seen, before=before, reported=reported, asked_at=now)
        history = replace(history, id=seen.id, counted=seen.starts)
        if history.exit_timestamp not in (None, before.exit_timestamp):
            history = replace(history, line=self._last_line(before, history, events, seen))
        if history != before or now - history.looked >= _MAX_GAP_SECONDS:
            history = replace(history, looked=now)
        return ContainerObservation(
            history, "ok", seen.state, seen.started, seen.restart_count, seen.health
        )

    def _last_line(
        self,
        before: ContainerHistory,
        history: ContainerHistory,
        events: tuple[Event, ...],
        seen: Inspection,
    ) -> str:
        """Returns the last line of the last ended run, printed since the exit before."""
        end = history.exit_timestamp or -math.inf
        ends = [event.timestamp for event in events if event.action == "die"]
        earlier = [moment for moment in (*ends, before.exit_timestamp or -math.inf) if moment < end]
        since = max(earlier, default=-math.inf)
        for tail in _TAILS:
            lines = self._engine.log(self._name, tail=tail, tty=seen.tty)
            line_text = last_line(
                line for moment, line in lines if since < moment < end + _LINE_TOLERANCE_SECONDS
            )
            if line_text or len(lines) < tail:
                break
        return stabilise(line_text, before.line)

    def _log_state(self, state: DockerEngineState, message: str) -> None:
        """Logs changes of the engine state, once each."""
        if state == self._engine_state:
            return
        self._engine_state = state
        facts = {"container": self._name, "state": state, "error": message}
        if state == "ok":
            log.info("docker engine answers", extra={"container": self._name})
        else:
            log.warning("docker engine cannot be asked", extra=facts)


def _reaches_back(events: tuple[Event, ...], before: ContainerHistory, seen: Inspection) -> bool:
    """Whether the engine's events reach back to the previous poll, or to the first start."""
    return any(
        event.timestamp <= before.event or (event.action, event.id) == ("create", seen.id)
        for event in events
    )
