"""Reads processes from /proc: the table of all, the files of one.

`read_*` returns None when the process is gone or the file may not be read, and raises CollectError
for anything else: a full file table must never look like an empty machine.
"""

from __future__ import annotations

import errno
import math
import os
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procformat import (
    TICKS_PER_SECOND,
    Cgroup,
    Identity,
    Process,
    Transfers,
    parse_cgroups,
    parse_command_line,
    parse_environment,
    parse_open_files_limit,
    parse_pss,
    parse_resident_bytes,
    parse_stat,
    parse_transfers,
)

__all__ = [
    "PROC",
    "BootTime",
    "Cgroup",
    "Identity",
    "Process",
    "Transfers",
    "are_own",
    "boot_seconds",
    "descendants",
    "list_pids",
    "parent",
    "parse_stat",
    "read_cgroups",
    "read_command_line",
    "read_environment",
    "read_executable",
    "read_open_files",
    "read_open_files_limit",
    "read_process",
    "read_processes",
    "read_pss",
    "read_resident_bytes",
    "read_text",
    "read_transfers",
    "start_timestamp",
]

PROC = Path("/proc")
T = TypeVar("T")
_STEPPED_SECONDS = 0.5
_RECORD_BYTES = 1 << 12
"""More than any record has. What is asked for is allocated, and given back when it is known how
much it is: where that is large (see `_set_up_heap` in memory.py) both take calls of the kernel."""
_CHUNK_BYTES = 1 << 15


def read_process(pid: int, root: Path = PROC) -> Process | None:
    """The process that has `pid` now, or None when none has."""
    return _read_process(f"{root}/{pid}/stat")


def list_pids(root: Path = PROC) -> list[int]:
    """The pids there are now. Raises CollectError when they cannot be listed."""
    try:
        names = os.listdir(root)  # noqa: PTH208 - names are all that is needed, and it is quicker
    except OSError as error:
        raise CollectError(f"cannot list {root}: {error.strerror}") from error
    return list(map(int, filter(str.isdecimal, names)))


def read_processes(root: Path = PROC) -> dict[int, Process]:
    """Every process there is now, by pid."""
    found = (read_process(pid, root) for pid in list_pids(root))
    return {process.pid: process for process in found if process is not None}


def read_command_line(pid: int, root: Path = PROC) -> tuple[str, ...] | None:
    """The arguments of the process; empty for a zombie."""
    data = _read(f"{root}/{pid}/cmdline")
    return None if data is None else parse_command_line(data)


def read_executable(pid: int, root: Path = PROC) -> str | None:
    """The absolute path of the program that runs, links resolved, even if it was replaced since."""
    path = Path(f"{root}/{pid}/exe")
    try:
        return str(path.readlink()).removesuffix(" (deleted)")
    except OSError as error:
        _pass_over(error, path)
        return None


def read_environment(pid: int, root: Path = PROC) -> dict[str, str] | None:
    """The variables the program was started with."""
    data = _read(f"{root}/{pid}/environ")
    return None if data is None else parse_environment(data)


def read_cgroups(pid: int, root: Path = PROC) -> tuple[Cgroup, ...] | None:
    """The cgroups the process is in, one a hierarchy."""
    data = _read(f"{root}/{pid}/cgroup")
    return None if data is None else parse_cgroups(data.decode("utf-8", "replace"))


def read_transfers(pid: int, root: Path = PROC) -> Transfers | None:
    data = _read_record(path := f"{root}/{pid}/io")
    return None if not data else _parsed(path, parse_transfers, data)


def read_resident_bytes(pid: int, root: Path = PROC) -> int | None:
    """Bytes of memory in use, from statm.

    On many cores the number in `stat` may be wrong by megabytes a process (percpu counters since
    Linux 6.2); since 6.16 the one in statm is summed properly.
    """
    data = _read_record(path := f"{root}/{pid}/statm")
    return None if not data else _parsed(path, parse_resident_bytes, data)


def read_pss(pid: int, root: Path = PROC) -> int | None:
    """Bytes of memory in use, each shared page divided by its users; about 1 ms a process."""
    data = _read(path := f"{root}/{pid}/smaps_rollup")
    return None if not data else _parsed(path, parse_pss, data)


def read_open_files(pid: int, root: Path = PROC) -> int | None:
    """How many file descriptors are open."""
    path = f"{root}/{pid}/fd"
    try:
        # since Linux 6.2 the size of the folder is the count, and needs no right to list it
        return os.stat(path).st_size or len(os.listdir(path))  # noqa: PTH116, PTH208 - a Path costs more than the call
    except OSError as error:
        _pass_over(error, path)
        return None


def read_open_files_limit(pid: int, root: Path = PROC) -> float | None:
    """How many file descriptors may be open (the soft limit).

    Asked of the kernel where it answers (prlimit(2): of one's own processes, or with the right to
    all): its file, which everybody may read, tells all limits as text and takes ten times as long.
    """
    if are_own(root):
        try:
            limit, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        except OSError:
            pass  # of another user; or gone, as the file will tell
        else:
            return math.inf if limit == resource.RLIM_INFINITY else float(limit)
    data = _read_record(path := f"{root}/{pid}/limits")
    return None if not data else _parsed(path, parse_open_files_limit, data)


@lru_cache(maxsize=8)
def are_own(root: Path) -> bool:
    """Whether the pids at `root` are what system calls of this program mean by them."""
    try:
        return root == PROC and str((root / "self").readlink()) == str(os.getpid())
    except OSError:
        return False


def read_text(path: str) -> str | None:
    """The text of any other file of a process."""
    data = _read(path)
    return None if data is None else data.decode("utf-8", "replace")


def boot_seconds() -> float:
    """Seconds since boot, sleep included: the clock that start times are measured on."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class BootTime:
    """The moment of boot in unix seconds, steady: it moves only when the clock was set anew."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        since_boot: Callable[[], float] = boot_seconds,
    ) -> None:
        self._clock = clock
        self._since_boot = since_boot
        self._last = -math.inf

    def __call__(self) -> float:
        now = self._clock() - self._since_boot()
        if abs(now - self._last) > _STEPPED_SECONDS:
            self._last = now
        return self._last


_boot_time = BootTime()


def start_timestamp(identity: Identity) -> float:
    """When the process started, in unix seconds; the same number at every call (see BootTime)."""
    return round(_boot_time() + identity.start_ticks / TICKS_PER_SECOND, 2)


def parent(process: Process, processes: Mapping[int, Process]) -> Process | None:
    """The parent of `process` in `processes`.

    The table is no single moment: a pid may have passed on while it was read. A parent is never
    younger than its child, so whoever is younger is not the parent.
    """
    found = processes.get(process.parent_pid)
    if found is None or found.identity.start_ticks > process.identity.start_ticks:
        return None
    return found


def descendants(processes: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """The pids below `roots`; the roots themselves only where one is below another."""
    children = defaultdict[int, list[int]](list)
    for pid, process in processes.items():
        children[process.parent_pid].append(pid)
    found: set[int] = set()
    waiting = [pid for pid in roots if pid in processes]
    while waiting:
        above = waiting.pop()
        for pid in children.get(above, ()):
            if pid not in found and pid != above and parent(processes[pid], processes) is not None:
                found.add(pid)
                waiting.append(pid)
    return found


def _read_process(path: str) -> Process | None:
    data = _read_record(path)
    if not data:
        return None
    try:
        return parse_stat(data)
    except ValueError as error:
        raise CollectError(f"{path}: {error}") from error


def _read(path: str) -> bytes | None:
    # os.open, not open(): a third of the time, and there are thousands of these files
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = chunk = os.read(descriptor, _CHUNK_BYTES)
            while chunk:
                chunk = os.read(descriptor, _CHUNK_BYTES)
                data += chunk
        finally:
            os.close(descriptor)
    except OSError as error:
        _pass_over(error, path)
        return None
    return data


def _read_record(path: str) -> bytes | None:
    """As `_read`, of a file that the kernel writes in one piece (single_open in fs/proc/base.c)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _RECORD_BYTES)
        finally:
            os.close(descriptor)
    except OSError as error:
        _pass_over(error, path)
        return None


def _pass_over(error: OSError, path: str | Path) -> None:
    """Accept that a process is gone or closed to us; EIO is memory that cannot be reached."""
    gone_or_closed = (FileNotFoundError, ProcessLookupError, PermissionError)
    if not isinstance(error, gone_or_closed) and error.errno != errno.EIO:
        raise CollectError(f"cannot read {path}: {error.strerror}") from error


def _parsed(path: str, parse: Callable[[str], T], data: bytes) -> T:
    try:
        return parse(data.decode("utf-8", "replace"))
    except (ValueError, IndexError) as error:
        raise CollectError(f"{path}: {error}") from error
