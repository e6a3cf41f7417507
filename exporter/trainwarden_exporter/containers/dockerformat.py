"""What a Docker engine answers, in its own formats. Pure.

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
_MOMENT = 0.01
_NEVER = "0001-01-01T00:00:00Z"
_FRACTION = re.compile(r"\.(\d{1,9})\d*")


@dataclass(frozen=True, slots=True)
class Inspection:
    """A container as its engine describes it. Times in unix seconds, None for what never was."""

    id: str
    state: State
    created: float
    started: float | None
    """When it started last, also if it has ended since."""
    finished: float | None
    """When it ended last, also if it has started since."""
    exit_code: int | None
    """How it ended; None while it runs."""
    restart_count: int
    """Restarts by the engine since somebody started it by hand; one that is due is counted."""
    oom_killed: bool
    health: Health | None
    """None where no health check is defined."""
    tty: bool
    pid: int | None = None
    """Its first process, while it runs."""
    restart_policy: str = ""
    """When the engine starts it again by itself: `always`, `unless-stopped`, `on-failure`, `no`."""
    error: str = ""
    """Why it could not be started, if it could not."""

    @property
    def starts(self) -> int:
        """How often it has started since somebody did that by hand."""
        if self.started is None:
            return 0
        return 1 + self.restart_count - (self.state == "restarting")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a container; `timestamp` in unix seconds."""

    action: str
    """`create`, `start`, `die`, `oom`, …."""
    id: str
    name: str
    timestamp: float
    exit_code: int | None = None
    signal: int | None = None
    """What was sent, where it is a `kill`."""


def parse_inspection(body: bytes) -> Inspection:
    """The answer to `GET /containers/<name>/json`. Raises ValueError for anything else."""
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
    """The answer to `GET /events`: one JSON document after the other. Raises ValueError.

    `status`, `id` and `from` are not read: version 1.52 has them no more.
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
    """A time such as `2026-11-21T05:35:34.399511438Z`; None for the zero that stands for never."""
    if text == _NEVER:
        return None
    # nine digits of a second are more than Python reads
    return datetime.fromisoformat(_FRACTION.sub(lambda m: f".{m[1][:6]:0<6}", text)).timestamp()


def parse_log(body: bytes, *, tty: bool) -> list[tuple[float, str]]:
    """The answer to `GET /containers/<name>/logs` with timestamps: each line with its time.

    A container without a terminal has its two outputs in one stream of frames. The engine reads
    them by themselves, so what both say in the same moment comes in any order: an error goes last.
    """
    pieces = [(False, body)] if tty else _frames(body)
    lines = [
        (timestamp, is_error, line)
        for is_error, piece in pieces
        for timestamp, line in _lines(piece)
    ]
    lines.sort(key=lambda line: line[0] + _MOMENT * line[1])
    return [(timestamp, line) for timestamp, _, line in lines]


def _frames(body: bytes) -> Iterator[tuple[bool, bytes]]:
    """Whether it is of stderr, and what it holds; of each whole frame.

    A frame has a header of eight bytes: the output's number, three zeros, and its length.
    """
    at = 0
    while at + _FRAME_HEADER <= len(body):
        end = at + _FRAME_HEADER + int.from_bytes(body[at + 4 : at + _FRAME_HEADER], "big")
        if end <= len(body):
            yield body[at] == _STDERR, body[at + _FRAME_HEADER : end]
        at = end


def _lines(piece: bytes) -> Iterator[tuple[float, str]]:
    for line in piece.decode("utf-8", "replace").split("\n"):
        moment, separator, content = line.partition(" ")
        try:
            timestamp = parse_time(moment) if separator else None
        except ValueError:
            continue
        if timestamp is not None:
            yield timestamp, content.rstrip("\r")
