"""How a container stands, by what its engine says, and whether it may be acted upon. Pure.

Source: the reference of the Engine API, versions 1.41 to 1.54. An engine does not say outright
whether it was told to stop a container; its events do, and so does a restart policy that would have
started it again otherwise.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import UTC, datetime

from trainwarden_exporter.containers.dockerformat import Event, Inspection
from trainwarden_remediator.actions.managed import Kept

STOPS = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM, None})
"""Signals of a `docker kill` that are meant to end a container, and one that is not known; others
only tell it something."""

TELLING = ("kill", "die", "stop")
"""Events that say how a container ended."""

_AGAIN = frozenset({"always", "unless-stopped"})
"""Restart policies by which whatever ends by itself is started again."""

_MOMENT = 1.0
"""Seconds by which an event may precede the end that it tells of."""


def told_to_stop(container: Inspection, events: Sequence[Event]) -> bool | None:
    """Whether a container that has ended was told to; None when that cannot be told any more.

    `events` are those of its name since it started, as far as the engine remembers them.
    """
    if container.oom_killed or container.error:
        return False
    if container.restart_policy in _AGAIN:
        return True
    own = [event for event in events if event.id == container.id]
    finished = container.finished or 0.0
    if not any(one.action == "die" and one.timestamp >= finished - _MOMENT for one in own):
        return None
    return any(
        one.action == "stop" or (one.action == "kill" and one.signal in STOPS) for one in own
    )


def kept(name: str, container: Inspection, events: Sequence[Event]) -> Kept:
    """What may be done about the container of that `name`."""
    started = container.started
    moment = "never" if started is None else datetime.fromtimestamp(started, UTC).isoformat()
    # Only what is up, or on its way down, is spared a start by whoever has to finish one.
    running = container.state in ("running", "paused", "restarting", "removing")
    stopped = None
    if container.state in ("exited", "dead"):
        stopped = told_to_stop(container, events)
    return Kept(
        identity=f"{name} {container.id[:12]} started {moment}",
        running=running,
        stopped=bool(stopped),
        hands_off=_hands_off(name, container, told=stopped),
        pid=container.pid,
    )


def _hands_off(name: str, container: Inspection, *, told: bool | None) -> str:
    match container.state:
        case "running":
            return ""
        case "restarting":
            return f"Docker is about to start {name} again by its restart policy"
        case "created":
            return f"{name} has never been started"
        case "paused":
            return f"{name} is paused"
        case "removing":
            return f"{name} is being removed"
    if told is None:
        return f"{name} has ended, and Docker does not tell any more whether it was told to"
    return f"{name} was told to stop" if told else ""
