"""Restarts a worker that is a container of Docker, by telling its engine to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from trainwarden_exporter.containers.docker import EngineError
from trainwarden_exporter.containers.dockerformat import Event, Inspection
from trainwarden_remediator.actions.base import Announce
from trainwarden_remediator.actions.dockercalls import ActingEngine
from trainwarden_remediator.actions.dockerstate import TELLING, kept
from trainwarden_remediator.actions.managed import Kept, ManagedAction
from trainwarden_remediator.exceptions import ActionError
from trainwarden_remediator.means.docker import DockerTarget
from trainwarden_remediator.targets import Target


class DockerAction(ManagedAction):
    """Tells Docker to restart one container.

    It is told by its id, which was looked up by the configured name: one that is made anew under
    the same name meanwhile is another.
    """

    # An engine of some versions stops a container and does not start it when whoever asked is gone.
    in_one = False

    def __init__(
        self, target: Target, container: DockerTarget, *, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(target)
        self._container = container
        self._engine = ActingEngine(container.socket)
        self._now = now

    def look(self) -> Kept:
        found = self._inspect()
        return kept(self._container.container, found, self._events(found))

    def restart(self, kept: Kept, mark: str, announce: Announce) -> None:
        if not kept.running:
            return self.start(kept, mark, announce)
        identifier = self._same(kept)
        announce("restart", manager="docker", what=self._container.container)
        try:
            self._engine.restart(identifier, grace=self._container.grace)
        except EngineError as error:
            raise ActionError(f"docker restart {self._container.container}: {error}") from error
        return None

    def start(self, kept: Kept, mark: str, announce: Announce) -> None:
        identifier = self._same(kept)
        announce("start", manager="docker", what=self._container.container)
        try:
            self._engine.start(identifier)
        except EngineError as error:
            raise ActionError(f"docker start {self._container.container}: {error}") from error

    def _same(self, meant: Kept) -> str:
        """The whole id of the container that was looked at. Raises ActionError if it is gone."""
        found = self._inspect()
        if kept(self._container.container, found, ()).identity != meant.identity:
            raise ActionError(f"{self._container.container} is another by now")
        return found.id

    def _inspect(self) -> Inspection:
        name = self._container.container
        try:
            found = self._engine.inspect(name)
        except EngineError as error:
            raise ActionError(f"cannot ask Docker: {error}") from error
        if found is None:
            raise ActionError(f"there is no container {name}")
        return found

    def _events(self, container: Inspection) -> Sequence[Event]:
        if container.state not in ("exited", "dead") or container.started is None:
            return ()
        name = self._container.container
        try:
            return self._engine.events(name, container.started, self._now(), TELLING)
        except EngineError as error:
            raise ActionError(f"cannot ask Docker: {error}") from error
