"""Parses the responses of the Docker Engine API. Pure.

Source: the reference of the Engine API, versions 1.41 to 1.54.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast, get_args

State = Literal["created", "running", "paused", "restarting", "removing", "exited", "dead"]
STATES: tuple[State, ...] = get_args(State)
Health = Literal["starting", "healthy", "unhealthy"]
HEALTHS: tuple[Health, ...] = get_args(Health)

_FRAME_HEADER = 8
_STDERR = 2
_END_TOLERANCE_SECONDS = 0.01
_ZERO_TIME = "0001-01-01T00:00:00Z"
_FRACTION = re.compile(r"\.(\d{1,9})\d*")


@dataclass(frozen=True, slots=True)
class Inspection:
    """A container as described by its engine. Times in Unix seconds; None for never."""

    id: str
    state: State
    created: float
    started: float | None
    """Last start, even if it has ended since."""
    finished: float | None
    """Last end, even if it has started since."""
    exit_code: int | None
    """Exit code; None while it runs."""
    restart_count: int
    """Restarts by the engine since the last manual start, including a pending restart."""
    oom_killed: bool
    health: Health | None
    """None without a health check."""
    tty: bool
    pid: int | None = None
    """Its first process, while it runs."""
    restart_policy: str = ""
    """Automatic restart policy: `always`, `unless-stopped`, `on-failure` or `no`."""
    error: str = ""
    """Error of a failed start."""

    @property
    def starts(self) -> int:
        """Starts since the last manual start, including that one."""
        if self.started is None:
            return 0
        return 1 + self.restart_count - (self.state == "restarting")


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a container; `timestamp` in Unix seconds."""

    action: str
    """`create`, `start`, `die`, `oom`, …."""
    id: str
    name: str
    timestamp: float
    exit_code: int | None = None
    signal: int | None = None
    """The signal of a `kill`."""


def parse_inspection(body: bytes) -> Inspection:
    """Parses the response to `GET /containers/<name>/json`. Raises ValueError if invalid."""
    try:
        answer: dict[str, Any] = json.loads(body)
        state = answer["State"]
        status = state["Status"]
        if status not in STATES:
            raise ValueError(f"a state that is not known: {status!r}")
        ended = status in ("exited", "dead", "restarting")
        health = (state.get("Health") or {}).get("Status")
        policy = (answer.get("HostConfig") or {}).get("RestartPolicy") or {}
        return Inspection(
            id=answer["Id"],
            state=status,
            created=cast("float", parse_time(answer["Created"])),
            started=parse_time(state["StartedAt"]),
            finished=parse_time(state["FinishedAt"]),
            exit_code=int(state["ExitCode"]) if ended else None,
            restart_count=int(answer["RestartCount"]),
            oom_killed=bool(state["OOMKilled"]),
            health=health if health in HEALTHS else None,
            tty=bool(answer["Config"]["Tty"]),
            pid=int(state.get("Pid") or 0) or None,
            restart_policy=str(policy.get("Name") or ""),
            error=str(state.get("Error") or ""),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no description of a container: {error!r}") from error


def parse_events(body: bytes) -> Iterator[Event]:
    """Parses the response to `GET /events`: a sequence of JSON documents. Raises ValueError.

    Ignores `status`, `id` and `from`, which version 1.52 removed.
    """
    try:
        for line in body.splitlines():
            if not line.strip():
                continue
            event: dict[str, Any] = json.loads(line)
            attributes = event["Actor"].get("Attributes") or {}
            code, signal = attributes.get("exitCode"), attributes.get("signal")
            yield Event(
                action=event["Action"],
                id=event["Actor"]["ID"],
                name=attributes.get("name", ""),
                timestamp=event["timeNano"] / 1e9,
                exit_code=None if code is None else int(code),
                signal=int(signal) if signal and signal.isdigit() else None,
            )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no event: {error!r}") from error


def parse_time(text: str) -> float | None:
    """Parses a time such as `2026-11-21T05:35:34.399511438Z`; None for the zero time."""
    if text == _ZERO_TIME:
        return None
    # Python does not parse nine fractional digits
    return datetime.fromisoformat(_FRACTION.sub(lambda m: f".{m[1][:6]:0<6}", text)).timestamp()


def parse_log(body: bytes, *, tty: bool) -> list[tuple[float, str]]:
    """Parses the response to `GET /containers/<name>/logs` with timestamps: time and text per line.

    Without a terminal, both outputs are frames in one stream. The engine reads them separately, so
    simultaneous lines come in any order; an error goes last.
    """
    pieces = [(False, body)] if tty else _parse_frames(body)
    lines = [
        (timestamp, is_error, line)
        for is_error, piece in pieces
        for timestamp, line in _parse_lines(piece)
    ]
    lines.sort(key=lambda line: line[0] + _END_TOLERANCE_SECONDS * line[1])
    return [(timestamp, line) for timestamp, _, line in lines]


def _parse_frames(body: bytes) -> Iterator[tuple[bool, bytes]]:
    """Yields for each complete frame whether it is stderr, and its content.

    A frame has a header of eight bytes: the output's number, three zeros, and its length.
    """
    at = 0
    while at + _FRAME_HEADER <= len(body):
        end = at + _FRAME_HEADER + int.from_bytes(body[at + 4 : at + _FRAME_HEADER], "big")
        if end <= len(body):
            yield body[at] == _STDERR, body[at + _FRAME_HEADER : end]
        at = end


def _parse_lines(piece: bytes) -> Iterator[tuple[float, str]]:
    for line in piece.decode("utf-8", "replace").split("\n"):
        moment, separator, content = line.partition(" ")
        try:
            timestamp = parse_time(moment) if separator else None
        except ValueError:
            continue
        if timestamp is not None:
            yield timestamp, content.rstrip("\r")
