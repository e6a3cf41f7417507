"""The processes of a run, found in /proc, and signals to exactly them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

RUN_ID_VARIABLE = "TRAINWARDEN_RUN_ID"
"""Environment variable that marks the processes of one run, also processes that left its tree."""

Identity = tuple[int, int]
"""Pid and start time in clock ticks since the boot."""


def read_start_ticks(pid: int, *, ended_too: bool = False) -> int:
    """Returns the start time of a process that lives (or that waits to be reaped), or 0."""
    fields = _stat(pid)
    return int(fields[19]) if fields and (ended_too or fields[0] not in ("Z", "X")) else 0


def find_processes(root: int, run_id: str) -> list[Identity]:
    """Returns the living processes below `root`, itself included, and those with `run_id`."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names alone
        if name.isdecimal() and (fields := _stat(int(name))) and fields[0] not in ("Z", "X"):
            parents[int(name)], ticks[int(name)] = int(fields[1]), int(fields[19])
    found = {root}
    grown = True
    while grown:
        below = {pid for pid, parent in parents.items() if parent in found} - found
        found |= below
        grown = bool(below)
    marker = f"{RUN_ID_VARIABLE}={run_id}".encode()
    for pid in parents.keys() - found:
        with suppress(OSError):
            if marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(pid)
    return [(pid, ticks[pid]) for pid in sorted(found) if pid in ticks]


def send_signal(processes: Iterable[Identity], number: int) -> None:
    """Sends a signal to each process that is still the one meant."""
    for pid, ticks in processes:
        with suppress(OSError):
            descriptor = os.pidfd_open(pid)
            try:
                # checked after opening: from now on the pid is pinned
                if read_start_ticks(pid) == ticks:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def _stat(pid: int) -> list[str]:
    """Returns the fields of /proc/<pid>/stat from the state on; empty if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
