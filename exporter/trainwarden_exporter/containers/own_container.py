"""Counts the starts of the container that this program runs in, from inside it.

Only a file on a volume survives a restart. A container is as old as the first process of its pid
namespace, so each start is recorded once, however often this program restarts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from trainwarden_exporter.containers.follower import ContainerObservation
from trainwarden_exporter.containers.history import ContainerHistory, last_line, stabilise
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs import PROC, read_process
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.runtime.state_file import StateFile

_CLOCK_TOLERANCE_SECONDS = 2.0
"""Seconds by which a file's time may differ: a volume may be on another machine."""
_MAX_EXIT_FILE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ContainerStart:
    id: str
    """Unique identity: the boot of the machine, and the ticks since then."""
    timestamp: float
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """The exit of a container, as recorded by its start command."""

    code: int
    line: str
    timestamp: float


def read_start(root: Path = PROC) -> ContainerStart:
    """Returns the start of our container, or of the machine outside of one.

    Raises CollectError if unavailable.
    """
    first = read_process(1, root)
    if first is None:
        raise CollectError(f"the start of process 1 is hidden from us in {root}")
    try:
        boot = (root / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = ""  # missing in some sandboxes; the ticks alone may repeat, hence `is_same_start`
    return ContainerStart(f"{boot}/{first.identity.start_ticks}", start_timestamp(first.identity))


def is_same_start(start: ContainerStart, history: ContainerHistory) -> bool:
    """Whether `start` is the last counted one."""
    if start.id != history.id:
        return False
    if not start.id.startswith("/"):
        return True
    return (
        bool(history.starts)
        and abs(history.starts[-1] - start.timestamp) < _CLOCK_TOLERANCE_SECONDS
    )


def read_exit(path: Path) -> ContainerExit | None:
    """Returns the exit that the start command has recorded in `path`; None without one.

    The first line is the exit code, the last line the last output of the run.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_EXIT_FILE_BYTES).decode("utf-8", "replace")
            timestamp = path.stat().st_mtime
    except OSError:
        return None
    code, _, output = content.partition("\n")
    if not code.strip().isdecimal():
        return None
    return ContainerExit(int(code), last_line(output.splitlines()), timestamp)


class OwnContainer:
    """Counts the container's start at the first call, once, and stores that in `state`."""

    def __init__(
        self,
        state: StateFile[ContainerHistory],
        exit_file: Path | None = None,
        *,
        root: Path = PROC,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._exit_file = exit_file
        self._root = root
        self._now = now

    def __call__(self) -> ContainerObservation:
        """Observes once. Raises CollectError."""
        start, before = read_start(self._root), self._state.value
        history = before
        if not is_same_start(start, before):
            history = replace(history.add_starts([start.timestamp], self._now()), id=start.id)
            # the exit is known only if it was recorded after the previous start
            previous = max(before.starts, default=-_CLOCK_TOLERANCE_SECONDS)
            history = self._add_exit(history, since=previous - _CLOCK_TOLERANCE_SECONDS)
        self._state.save(history)
        return ContainerObservation(
            history, state="running", started=start.timestamp, restarts=history.starts_total - 1
        )

    def _add_exit(self, history: ContainerHistory, *, since: float) -> ContainerHistory:
        ended = None if self._exit_file is None else read_exit(self._exit_file)
        if ended is None or ended.timestamp < since:
            return replace(history, exit_code=None, exit_timestamp=None, line="")
        return replace(
            history,
            exit_code=ended.code,
            exit_timestamp=ended.timestamp,
            line=stabilise(ended.line, history.line),
        )
