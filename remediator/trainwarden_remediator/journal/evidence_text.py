"""What stored evidence shows of a fault: how processes ended, and the last error of the logs. Pure.

Its content is that of `evidence.collector`: what is missing there is absent here.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainwarden_exporter.frameworks.error_lines import (
    COMMON_ERROR_PATTERNS,
    last_error,
    last_lines,
)

SAME_KILL_SECONDS = 30.0
"""Most seconds between an end and an OOM kill that belong together: both are seen at a scrape."""


_OF_DISK = [
    re.compile(one.regex)
    for one in COMMON_ERROR_PATTERNS
    if one.name in ("disk_full", "not_writable", "disk_error")
]


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The end of a process that is missing; `at` in Unix seconds, `how` is a clause."""

    worker: str
    at: float
    how: str


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """A disk as the exporter's page had it. `free` and `size` in bytes; None if not known."""

    path: str
    free: float | None = None
    size: float | None = None
    read_only: bool = False
    runs: frozenset[str] = frozenset()
    """The runs that save there."""

    @property
    def free_share(self) -> float:
        return 1.0 if self.free is None else self.free / (self.size or 1.0)


@dataclass(frozen=True, slots=True)
class FaultFacts:
    """What a notification says of a fault, as plain text; empty where it is not known."""

    cause: str = ""
    error: str = ""
    log: str = ""
    start: str = ""
    """What an operator types to start a command again that has failed."""
    disks: tuple[DiskFacts, ...] = ()
    disk_error: str = ""
    """The last line that reports an error of a disk: a later start may have failed otherwise."""
    at: float = 0.0
    """When the journal got the evidence of it (Unix seconds); 0 if not known."""
    lines: str = ""
    """The last lines of the log of a process that has ended, if none reports an error."""


def parse_evidence(text: str) -> Mapping[str, Any]:
    """Returns the content of stored evidence; empty if it is damaged."""
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def fault_facts(content: Mapping[str, Any]) -> FaultFacts:
    """Returns the first end of a process, or what a stuck run waits for, and the last error.

    Also the log that has that error, and what starts a command that has failed. Where a process has
    ended and no line reports an error, the last lines.
    """
    ends = process_ends(content)
    cause = f"{ends[0].worker} {ends[0].how}" if ends else proved_wait(content)
    logs = [log for log in content.get("logs", ()) if log.get("lines")]
    errors = ((last_error(list(map(str, log["lines"]))), str(log.get("path", ""))) for log in logs)
    found = next((one for one in errors if one[0]), None)
    if found is None:
        found = "", str(logs[0].get("path", "")) if logs else ""
    failed = (one for one in content.get("announced", {}).values() if one.get("exit_code"))
    start = next((str(one.get("start_command", "")) for one in failed), "")
    lines = [str(line) for log in logs for line in log["lines"]]
    about_disk = [line.strip() for line in lines if any(one.search(line) for one in _OF_DISK)]
    disks, disk_error = tuple(_disks(content)), about_disk[-1] if about_disk else ""
    end = last_lines(list(map(str, logs[0]["lines"]))) if ends and logs and not found[0] else ""
    return FaultFacts(cause, *found, start, disks, disk_error, lines=end)


def _disks(content: Mapping[str, Any]) -> Iterator[DiskFacts]:
    for path, disk in content.get("seen", {}).get("disks", {}).items():
        runs, read_only = frozenset(disk.get("runs", ())), bool(disk.get("read_only"))
        yield DiskFacts(path, disk.get("free"), disk.get("size"), read_only, runs)


def proved_wait(content: Mapping[str, Any]) -> str:
    """Returns what a stuck run waits for; "" unless it is proved to be stuck."""
    runs = content.get("seen", {}).get("runs", {}).values()
    return next((str(run.get("waits", "")) for run in runs if run.get("stuck")), "")


def process_ends(content: Mapping[str, Any]) -> list[ProcessEnd]:
    """Returns how the processes that are missing ended, the first end first."""
    return sorted(_process_ends(content), key=lambda one: one.at)


def _process_ends(content: Mapping[str, Any]) -> Iterator[ProcessEnd]:
    seen = content.get("seen", {})
    oom_killed_at = seen.get("memory", {}).get("oom_killed_at")
    for name, worker in seen.get("workers", {}).items():
        if not is_missing(worker) or not {"last_exit_at", "last_exit_code"} <= worker.keys():
            continue
        # The announcement of a command has the moment; the exporter that of its next look.
        announced = content.get("announced", {}).get(name, {})
        at = announced.get("ended_at") or worker["last_exit_at"]
        how = describe_exit(round(worker["last_exit_code"]))
        if "SIGKILL" in how and oom_killed_at is not None:
            caused = abs(oom_killed_at - at) <= SAME_KILL_SECONDS
            how += (
                "; the kernel killed a process then because memory ran out (OOM kill)"
                if caused
                else "; no OOM kill by the kernel was seen then"
            )
        yield ProcessEnd(name, at, how)


def is_missing(worker: Mapping[str, Any]) -> bool:
    """Whether a worker lacks processes, and has not finished."""
    missing: bool = worker.get("processes", 0) < worker.get("expected", 0)
    return missing and not worker.get("finished")


def held_memory(worker: Mapping[str, Any]) -> float:
    """Returns the bytes that a worker held; their older name is that of evidence from before."""
    held: float = worker.get("memory_bytes", worker.get("resident_bytes", 0.0))
    return held


def describe_exit(exit_code: int) -> str:
    """Returns how a process ended, as a clause; 128+n stands for signal n."""
    try:
        name = signal.Signals(exit_code - 128).name if exit_code > 128 else ""  # noqa: PLR2004 - 128+n for signal n
    except ValueError:
        name = ""
    if name:
        return f"was killed by {name} (exit status {exit_code})"
    return f"ended with exit status {exit_code}"
