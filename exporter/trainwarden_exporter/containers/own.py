"""Counts the starts of the container that this program runs in, from inside it.

All that a restart leaves is a file on a volume. A container is as old as the first process of its
pid namespace: one file is told of each start once, however often this program starts meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from trainwarden_exporter.containers.following import Sighting
from trainwarden_exporter.containers.lastline import last_line, steady
from trainwarden_exporter.containers.past import Past
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs import PROC, read_process, start_timestamp
from trainwarden_exporter.statefile import StateFile

_CLOCK_SLACK = 2.0
"""Seconds that a file's time may be off: a volume may be another machine's."""
_LARGEST = 1 << 16


@dataclass(frozen=True, slots=True)
class Start:
    """A start of a container."""

    id: str
    """Tells it from all others: the boot of the machine, and the ticks since then."""
    timestamp: float
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How the container ended, as its start command has written it down."""

    code: int
    line: str
    timestamp: float


def read_start(root: Path = PROC) -> Start:
    """When the container started that we are in; the machine where we are in none.

    Raises CollectError where that is hidden.
    """
    first = read_process(1, root)
    if first is None:
        raise CollectError(f"the start of process 1 is hidden from us in {root}")
    try:
        boot = (root / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = ""  # not told in every sandbox; the ticks alone may repeat, hence `is_same`
    return Start(f"{boot}/{first.identity.start_ticks}", start_timestamp(first.identity))


def is_same(start: Start, past: Past) -> bool:
    """Whether `start` is the one that was counted last."""
    if start.id != past.id:
        return False
    if not start.id.startswith("/"):
        return True
    return bool(past.starts) and abs(past.starts[-1] - start.timestamp) < _CLOCK_SLACK


def read_exit(path: Path) -> Exit | None:
    """What the start command has written into `path` in the end; None where that is nothing.

    The first line is its exit code, the last one what the run said last.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST).decode("utf-8", "replace")
            timestamp = path.stat().st_mtime
    except OSError:
        return None
    code, _, said = content.partition("\n")
    if not code.strip().isdecimal():
        return None
    return Exit(int(code), last_line(said.splitlines()), timestamp)


class OwnContainer:
    """Counts the container's start at the first call, if nobody has, and keeps that in `state`."""

    def __init__(
        self,
        state: StateFile[Past],
        exit_file: Path | None = None,
        *,
        root: Path = PROC,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._exit_file = exit_file
        self._root = root
        self._now = now

    def __call__(self) -> Sighting:
        """Look once. Raises CollectError."""
        start, before = read_start(self._root), self._state.value
        past = before
        if not is_same(start, before):
            past = replace(past.started([start.timestamp], self._now()), id=start.id)
            # how it ended is known only if that was written after the start before this one
            previous = max(before.starts, default=-_CLOCK_SLACK)
            past = self._ended(past, since=previous - _CLOCK_SLACK)
        self._state.save(past)
        return Sighting(
            past, state="running", started=start.timestamp, restarts=past.starts_total - 1
        )

    def _ended(self, past: Past, *, since: float) -> Past:
        ended = None if self._exit_file is None else read_exit(self._exit_file)
        if ended is None or ended.timestamp < since:
            return replace(past, exit_code=None, exit_timestamp=None, line="")
        return replace(
            past,
            exit_code=ended.code,
            exit_timestamp=ended.timestamp,
            line=steady(ended.line, past.line),
        )
