"""What the processes of one worker use at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.processes.matching import Tree
from trainwarden_exporter.processes.procfs import (
    PROC,
    Identity,
    Process,
    Transfers,
    read_open_files,
    read_open_files_limit,
    read_process,
    read_pss,
    read_resident_bytes,
    read_transfers,
)

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "disk_sleep",
    "T": "stopped",
    "t": "stopped",
    "Z": "zombie",
}
STATES = ("running", "sleeping", "disk_sleep", "stopped", "zombie", "other")


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """File descriptors of one process: how many are open, how many may be."""

    count: int
    limit: float


@dataclass(frozen=True, slots=True)
class Usage:
    """What one tree uses. None stands for what may not be read.

    `open_files` is that of the process nearest its limit. `transfers` holds what could be read;
    it is None when nothing could, though something runs.
    """

    resident_bytes: int
    pss_bytes: int | None
    open_files: OpenFiles | None
    transfers: Mapping[Identity, Transfers] | None


def read_usage(tree: Tree, root: Path = PROC, *, pss: bool = False) -> Usage:
    """The usage of `tree` now; a process that ends meanwhile is left out. PSS only if asked for."""
    living = [process for process in tree.members if process.alive]
    return Usage(
        resident_bytes=sum(_resident_bytes(process, root) for process in living),
        pss_bytes=_read_pss(living, root) if pss else None,
        open_files=nearest_limit(_open_files(process, root) for process in living),
        transfers=_read_transfers(tree.members, root),
    )


def count_states(processes: Iterable[Process]) -> Mapping[str, int]:
    """How many processes are in each of STATES, all of them present."""
    counts = dict.fromkeys(STATES, 0)
    for process in processes:
        counts[_STATES.get(process.state, "other")] += 1
    return counts


def nearest_limit(candidates: Iterable[OpenFiles | None]) -> OpenFiles | None:
    """The one that has used most of its limit."""
    known = (files for files in candidates if files is not None)
    return max(known, key=lambda files: files.count / max(files.limit, 1), default=None)


def _resident_bytes(process: Process, root: Path) -> int:
    exact = read_resident_bytes(process.pid, root)
    return process.resident_bytes if exact is None else exact


def _open_files(process: Process, root: Path) -> OpenFiles | None:
    count = read_open_files(process.pid, root)
    limit = read_open_files_limit(process.pid, root)
    return None if count is None or limit is None else OpenFiles(count, limit)


def _read_pss(living: Iterable[Process], root: Path) -> int | None:
    total = 0
    for process in living:
        pss = read_pss(process.pid, root)
        if pss is not None:
            total += pss
        elif _still_runs(process, root):
            return None  # a sum with a part missing would pass for the whole
    return total


def _read_transfers(members: Iterable[Process], root: Path) -> Mapping[Identity, Transfers] | None:
    found: dict[Identity, Transfers] = {}
    closed: list[Process] = []
    for process in members:
        transfers = read_transfers(process.pid, root)
        if transfers is not None:
            found[process.identity] = transfers
        elif process.alive:
            closed.append(process)
    unreadable = not found and any(_still_runs(process, root) for process in closed)
    return None if unreadable else found


def _still_runs(process: Process, root: Path) -> bool:
    now = read_process(process.pid, root)
    return now is not None and now.alive and now.identity == process.identity
