"""Current resource usage of the processes of one worker."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.processes.matching import ProcessTree
from trainwarden_exporter.processes.procfs import (
    PROC,
    Identity,
    Process,
    Pss,
    Transfers,
    read_mapped_bytes,
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
    """Open file descriptors of one process and their limit."""

    count: int
    limit: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of one process tree; None for unreadable values.

    `open_files` is that of the process closest to its limit. `transfers` holds the readable values;
    None if processes run but none is readable.
    """

    resident_bytes: int
    mapped_bytes: int
    """Resident memory that is mapped files."""
    pss: Pss | None
    open_files: OpenFiles | None
    transfers: Mapping[Identity, Transfers] | None
    last_repeated_bytes: int = 0
    """`repeated_bytes` when PSS was last known."""

    @property
    def memory_bytes(self) -> int:
        """The resident memory without mapped files, and with shared pages counted once.

        The kernel drops the pages of a file, such as a data set, when it needs the memory.
        """
        return max(0, self._unmapped_bytes - self.repeated_bytes)

    @property
    def repeated_bytes(self) -> int:
        """How much of the resident memory is shared pages that are counted once too often."""
        if self.pss is None:
            return self.last_repeated_bytes
        return max(0, self._unmapped_bytes - (self.pss.total - self.pss.mapped))

    @property
    def _unmapped_bytes(self) -> int:
        return self.resident_bytes - self.mapped_bytes


# psutil takes 79 ms for 2,000 processes, this takes 29 ms; bench/psutil_reads.py
def read_usage(
    tree: ProcessTree, root: Path = PROC, *, pss: bool = False, doubtful_above: float = math.inf
) -> Usage:
    """Returns the usage of `tree`; omits processes that end meanwhile.

    PSS only on request, or if they exceed `doubtful_above` bytes without mapped files: resident
    memory counts shared pages several times.
    """
    living = [process for process in tree.members if process.alive]
    resident_bytes = sum(_resident_bytes(process, root) for process in living)
    mapped_bytes = sum(read_mapped_bytes(process.pid, root) or 0 for process in living)
    is_doubtful = resident_bytes - mapped_bytes > doubtful_above
    return Usage(
        resident_bytes=resident_bytes,
        mapped_bytes=mapped_bytes,
        pss=_read_pss(living, root) if pss or is_doubtful else None,
        open_files=nearest_limit(_open_files(process, root) for process in living),
        transfers=_read_transfers(tree.members, root),
    )


def count_states(processes: Iterable[Process]) -> Mapping[str, int]:
    """Returns the number of processes in each of STATES, including zeros."""
    counts = dict.fromkeys(STATES, 0)
    for process in processes:
        counts[_STATES.get(process.state, "other")] += 1
    return counts


def nearest_limit(candidates: Iterable[OpenFiles | None]) -> OpenFiles | None:
    """Returns the entry closest to its limit."""
    known = (files for files in candidates if files is not None)
    return max(known, key=lambda files: files.count / max(files.limit, 1), default=None)


def _resident_bytes(process: Process, root: Path) -> int:
    exact = read_resident_bytes(process.pid, root)
    return process.resident_bytes if exact is None else exact


def _open_files(process: Process, root: Path) -> OpenFiles | None:
    count = read_open_files(process.pid, root)
    limit = read_open_files_limit(process.pid, root)
    return None if count is None or limit is None else OpenFiles(count, limit)


def _read_pss(living: Iterable[Process], root: Path) -> Pss | None:
    found: list[Pss] = []
    for process in living:
        pss = read_pss(process.pid, root)
        if pss is not None:
            found.append(pss)
        elif _still_runs(process, root):
            return None  # an incomplete sum would look complete
    return Pss(sum(one.total for one in found), sum(one.mapped for one in found))


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
