"""Restarts a worker in a Docker container through the API of the Docker Engine."""

from __future__ import annotations

import http.client
import json
import signal
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from trainwarden_exporter.containers.docker_api import Event, Inspection
from trainwarden_exporter.containers.docker_client import DockerClient, DockerError
from trainwarden_remediator.actions.base import RecordStep, action_errors
from trainwarden_remediator.actions.manager_target import ManagedAction, ManagedInstance
from trainwarden_remediator.config.restart_methods.docker import DockerTarget
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import ActionError


class DockerAction(ManagedAction[DockerTarget]):
    """Restarts one container.

    Requests use the ID that belongs to the configured name when the action starts: a container that
    is recreated under the same name meanwhile is not affected.
    """

    # Some versions of the engine stop a container without starting it when the client disconnects.
    restarts_atomically = False

    def __init__(self, target: Target, container: DockerTarget) -> None:
        super().__init__(target, container)
        self._engine = DockerControlClient(container.socket)

    def read_instance(self) -> ManagedInstance:
        found = self._inspect()
        return managed_instance(self._method.container, found, self._events(found))

    def restart(self, instance: ManagedInstance, token: str, record_step: RecordStep) -> None:
        if not instance.running:
            return self.start(instance, token, record_step)
        identifier = self._current_id(instance)
        record_step("restart", manager="docker", what=self._method.container)
        try:
            self._engine.restart(identifier, grace=self._method.grace)
        except DockerError as error:
            # The engine may stop the container after that, and not start it.
            if not (isinstance(error.__cause__, TimeoutError) and self._wait_for_end(instance)):
                raise ActionError(f"docker restart {self._method.container}: {error}") from error
            now = self.read_instance()
            if now.identity == instance.identity:
                return self.start(now, token, record_step)
        return None

    def start(self, instance: ManagedInstance, token: str, record_step: RecordStep) -> None:
        identifier = self._current_id(instance)
        record_step("start", manager="docker", what=self._method.container)
        with action_errors(f"docker start {self._method.container}", DockerError):
            self._engine.start(identifier)

    def _current_id(self, intended: ManagedInstance) -> str:
        """Returns the full ID of the intended container. Raises ActionError if it is gone."""
        found = self._inspect()
        if managed_instance(self._method.container, found, ()).identity != intended.identity:
            raise ActionError(f"{self._method.container} has been replaced")
        return found.id

    def _inspect(self) -> Inspection:
        name = self._method.container
        with action_errors("cannot query Docker", DockerError):
            found = self._engine.inspect(name)
        if found is None:
            raise ActionError(f"there is no container {name}")
        return found

    def _events(self, container: Inspection) -> Sequence[Event]:
        if container.state not in ("exited", "dead") or container.started is None:
            return ()
        name = self._method.container
        with action_errors("cannot query Docker", DockerError):
            return self._engine.events(name, container.started, time.time(), END_EVENTS)


STOP_SIGNALS = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM, None})
"""Signals of `docker kill` that end a container, and None for an unknown signal."""

END_EVENTS = ("kill", "die", "stop")
"""Events that show how a container ended."""

_RESTARTING_POLICIES = frozenset({"always", "unless-stopped"})
"""Restart policies that start a container again whenever it exits without a stop request."""

_EVENT_TOLERANCE_SECONDS = 1.0
"""Seconds by which an event may precede the recorded end of its container."""


def was_stop_requested(container: Inspection, events: Sequence[Event]) -> bool | None:
    """Whether an exited container was stopped on request; None if that is no longer known.

    `events`: the events of its name since it started, as far as the engine remembers them.
    """
    if container.oom_killed or container.error:
        return False
    if container.restart_policy in _RESTARTING_POLICIES:
        return True
    own = [event for event in events if event.id == container.id]
    earliest = (container.finished or 0.0) - _EVENT_TOLERANCE_SECONDS
    if not any(one.action == "die" and one.timestamp >= earliest for one in own):
        return None
    return any(
        one.action == "stop" or (one.action == "kill" and one.signal in STOP_SIGNALS) for one in own
    )


def managed_instance(name: str, container: Inspection, events: Sequence[Event]) -> ManagedInstance:
    """Returns the container `name` as an instance, with the reason not to act on it."""
    started = container.started
    moment = "never" if started is None else datetime.fromtimestamp(started, UTC).isoformat()
    # An interrupted restart starts the container unless it is in one of these states.
    running = container.state in ("running", "paused", "restarting", "removing")
    stop_requested = None
    if container.state in ("exited", "dead"):
        stop_requested = was_stop_requested(container, events)
    return ManagedInstance(
        identity=f"{name} {container.id[:12]} started {moment}",
        running=running,
        stopped=bool(stop_requested),
        blocker=_blocker(name, container, stop_requested=stop_requested),
        pid=container.pid,
    )


_BLOCKERS = {
    "running": "",
    "restarting": "Docker is about to start {name} again by its restart policy",
    "created": "{name} has never been started",
    "paused": "{name} is paused",
    "removing": "{name} is being removed",
}


def _blocker(name: str, container: Inspection, *, stop_requested: bool | None) -> str:
    if (blocker := _BLOCKERS.get(container.state)) is not None:
        return blocker.format(name=name)
    if stop_requested is None:
        return f"{name} has exited, and Docker no longer knows whether it was stopped on request"
    return f"{name} was stopped on request" if stop_requested else ""


MARGIN_SECONDS = 30.0
"""Seconds that the engine may take for a restart in addition to the stop."""

_SUCCESS_STATUSES = (http.client.NO_CONTENT, http.client.NOT_MODIFIED)


class DockerControlClient(DockerClient):
    """A Docker Engine client that can restart and start. All methods raise DockerError."""

    def restart(self, identifier: str, *, grace: float) -> None:
        """Stops a container, with SIGKILL after `grace` seconds, and starts it."""
        query = {"t": str(round(grace))}
        self._post(f"/containers/{identifier}/restart", query, timeout=grace + MARGIN_SECONDS)

    def start(self, identifier: str) -> None:
        self._post(f"/containers/{identifier}/start", {}, timeout=MARGIN_SECONDS)

    def _post(self, path: str, query: Mapping[str, str], *, timeout: float) -> None:
        status, body = self._request(path, query, method="POST", timeout=timeout)
        if status not in _SUCCESS_STATUSES:
            raise DockerError("failing", f"status {status}: {_message(body)}")


def _message(body: bytes) -> str:
    try:
        message = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        message = body.decode("utf-8", "replace")
    return " ".join(str(message).split())[:300]
