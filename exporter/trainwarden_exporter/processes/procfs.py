"""Reads processes from /proc: the table of all, and the files of one.

`read_*` returns None if the process has ended or the file is not readable, and raises CollectError
for any other error: a full file table must never look like an empty machine.
"""

from __future__ import annotations

import errno
import math
import os
import pwd
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs_parser import (
    Cgroup,
    Identity,
    Process,
    Pss,
    Transfers,
    parse_cgroups,
    parse_command_line,
    parse_environment,
    parse_mapped_bytes,
    parse_open_files_limit,
    parse_pss,
    parse_resident_bytes,
    parse_stat,
    parse_transfers,
)

__all__ = [
    "PROC",
    "Cgroup",
    "Identity",
    "Process",
    "Pss",
    "Transfers",
    "is_own_proc",
    "list_pids",
    "parse_stat",
    "read_cgroups",
    "read_command_line",
    "read_environment",
    "read_executable",
    "read_mapped_bytes",
    "read_open_files",
    "read_open_files_limit",
    "read_open_links",
    "read_owner",
    "read_process",
    "read_processes",
    "read_pss",
    "read_resident_bytes",
    "read_text",
    "read_transfers",
    "read_uid",
    "read_working_folder",
]

PROC = Path("/proc")
T = TypeVar("T")
_RECORD_BYTES = 1 << 12
"""Larger than any record. Memory of this size is allocated for each read and then trimmed; for
a larger size (see `_set_up_heap` in memory.py) both require system calls."""
_CHUNK_BYTES = 1 << 15


def read_process(pid: int, root: Path = PROC) -> Process | None:
    """Returns the process with `pid`, or None.

    If its main thread has ended, state and memory are those of a thread that lives: the process has
    not ended before its last thread.
    """
    process = _read_parsed(f"{root}/{pid}/stat", parse_stat)
    if process is None or process.alive or process.threads <= 1:
        return process
    thread = _read_living_thread(pid, root)
    if thread is None:
        return process
    return replace(
        process,
        state=thread.state,
        resident_bytes=thread.resident_bytes,
        exec_mark=(process.name, thread.exec_mark[1]),
    )


def is_alive(identity: Identity) -> bool:
    """Whether a process still runs. Raises CollectError if that is unknown."""
    process = read_process(identity.pid)
    return process is not None and process.identity == identity and process.alive


def list_pids(root: Path = PROC) -> list[int]:
    """Returns the current pids. Raises CollectError if they cannot be listed."""
    try:
        names = os.listdir(root)  # noqa: PTH208 - names are all that is needed, and it is quicker
    except OSError as error:
        raise CollectError(f"cannot list {root}: {error.strerror}") from error
    return list(map(int, filter(str.isdecimal, names)))


# psutil takes 110 ms for 2,000 processes, this takes 25 ms; bench/psutil_reads.py
def read_processes(root: Path = PROC) -> dict[int, Process]:
    """Returns all current processes by pid."""
    found = (read_process(pid, root) for pid in list_pids(root))
    return {process.pid: process for process in found if process is not None}


def read_command_line(pid: int, root: Path = PROC) -> tuple[str, ...] | None:
    """Returns the arguments of the process; empty if it has ended and was not reaped."""
    return _of_process_or_thread(
        pid, root, lambda folder: _parsed(_read(f"{folder}/cmdline"), parse_command_line)
    )


def read_executable(pid: int, root: Path = PROC) -> str | None:
    """Returns the resolved path of the running program, even if the file was replaced since."""
    return _of_process_or_thread(pid, root, lambda folder: _read_link(f"{folder}/exe"))


def read_working_folder(pid: int, root: Path = PROC) -> str | None:
    """Returns the resolved path of the working folder, even if it was removed since."""
    return _of_process_or_thread(pid, root, lambda folder: _read_link(f"{folder}/cwd"))


def read_environment(pid: int, root: Path = PROC) -> dict[str, str] | None:
    """Returns the environment that the program was started with."""
    return _of_process_or_thread(
        pid, root, lambda folder: _parsed(_read(f"{folder}/environ"), parse_environment)
    )


def read_cgroups(pid: int, root: Path = PROC) -> tuple[Cgroup, ...] | None:
    """Returns the cgroups of the process, one per hierarchy."""
    data = _read(f"{root}/{pid}/cgroup")
    return None if data is None else parse_cgroups(data.decode("utf-8", "replace"))


def read_owner(pid: int, root: Path = PROC) -> str:
    """Returns the account of a process, or its uid if that has no name; empty if it has ended."""
    uid = read_uid(pid, root)
    return "" if uid is None else account_name(uid)


def account_name(uid: int) -> str:
    """Returns the name of an account, or its uid if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def read_uid(pid: int, root: Path = PROC) -> int | None:
    """Returns the account (real uid) of a process; None if it has ended.

    The effective uid is that of the program's owner in a set-uid program, which any account may
    start with any command line.
    """
    try:
        uid = os.stat(f"{root}/{pid}").st_uid  # noqa: PTH116 - beside the other reads of /proc
        status = read_text(f"{root}/{pid}/status") or ""
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("Uid:"):  # the folder of a process that may not be traced is root's
            uid = int(line.split()[1])
    return uid


def read_transfers(pid: int, root: Path = PROC) -> Transfers | None:
    return _read_parsed(f"{root}/{pid}/io", parse_transfers)


def read_resident_bytes(pid: int, root: Path = PROC) -> int | None:
    """Returns the resident memory in bytes, from statm.

    On many cores the number in `stat` may be wrong by megabytes per process (percpu counters since
    Linux 6.2); since 6.16 statm is exact.
    """
    return _of_process_or_thread(
        pid, root, lambda folder: _read_parsed(f"{folder}/statm", parse_resident_bytes)
    )


def read_mapped_bytes(pid: int, root: Path = PROC) -> int | None:
    """Returns how much of the resident memory is mapped files, in bytes."""
    return _of_process_or_thread(
        pid, root, lambda folder: _read_parsed(f"{folder}/status", parse_mapped_bytes)
    )


def read_pss(pid: int, root: Path = PROC) -> Pss | None:
    """Returns the memory with shared pages divided among their users; takes about 1 ms."""
    return _of_process_or_thread(
        pid, root, lambda folder: _read_parsed(f"{folder}/smaps_rollup", parse_pss)
    )


def read_open_links(pid: int, root: Path = PROC) -> Iterator[tuple[str, str]]:
    """Yields the number and the link of each open file descriptor.

    Yields none if the process has ended or belongs to another account.
    """
    folder = f"{root}/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return
    for name in names:
        try:
            link = os.readlink(f"{folder}/{name}")  # noqa: PTH115 - a link in /proc, not a path
        except OSError:
            continue
        yield name, link


def read_open_files(pid: int, root: Path = PROC) -> int | None:
    """Returns the number of open file descriptors."""
    return _of_process_or_thread(pid, root, _read_open_files)


def read_open_files_limit(pid: int, root: Path = PROC) -> float | None:
    """Returns the soft limit of open file descriptors.

    Uses prlimit(2) where permitted (own processes, or with privileges): the file in /proc, readable
    by all, contains all limits as text and takes ten times as long.
    """
    if is_own_proc(root):
        try:
            limit, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        except OSError:
            pass  # another user's process, or ended: the file decides
        else:
            return math.inf if limit == resource.RLIM_INFINITY else float(limit)
    return _read_parsed(f"{root}/{pid}/limits", parse_open_files_limit)


@lru_cache(maxsize=8)
def is_own_proc(root: Path) -> bool:
    """Whether the pids at `root` are valid in system calls of this program."""
    try:
        return root == PROC and str((root / "self").readlink()) == str(os.getpid())
    except OSError:
        return False


def read_own_pid(root: Path = PROC) -> int:
    """The pid of this process as the /proc at `root` counts, which may be another namespace's."""
    try:
        return int(str((root / "self").readlink()))
    except (OSError, ValueError):
        return os.getpid()


def read_text(path: str) -> str | None:
    """Returns the text of any other file of a process."""
    data = _read(path)
    return None if data is None else data.decode("utf-8", "replace")


def _read_living_thread(pid: int, root: Path) -> Process | None:
    """Returns a thread of the process that has not ended; `pid` is that of the thread."""
    folder = f"{root}/{pid}/task"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is needed
    except OSError as error:
        _ignore_gone(error, folder)
        return None
    if len(names) <= 1:
        return None
    found = (_read_parsed(f"{folder}/{name}/stat", parse_stat) for name in names)
    return next((thread for thread in found if thread is not None and thread.alive), None)


def _of_process_or_thread(pid: int, root: Path, read: Callable[[str], T | None]) -> T | None:
    """Returns what `read` finds in the folder of a process; if empty, of a thread that lives.

    The files of a main thread that has ended are empty, while its process may live on.
    """
    found = read(f"{root}/{pid}")
    if found:
        return found
    thread = _read_living_thread(pid, root)
    if thread is None or thread.pid == pid:
        return found
    return read(f"{root}/{pid}/task/{thread.pid}")


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path).removesuffix(" (deleted)")  # noqa: PTH115 - a link in /proc, not a path
    except OSError as error:
        _ignore_gone(error, path)
        return None


def _read_open_files(folder: str) -> int | None:
    path = f"{folder}/fd"
    try:
        # since Linux 6.2 the size of the folder is the count, available without permission to list
        # it
        return os.stat(path).st_size or len(os.listdir(path))  # noqa: PTH116, PTH208 - a Path costs more than the call
    except OSError as error:
        _ignore_gone(error, path)
        return None


def _parsed(data: bytes | None, parse: Callable[[bytes], T]) -> T | None:
    return None if data is None else parse(data)


def _read(path: str) -> bytes | None:
    # os.open takes a third of the time of open(), and there are thousands of these files
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
        _ignore_gone(error, path)
        return None
    return data


def _read_parsed(path: str, parse: Callable[[str], T]) -> T | None:
    """Parses a file that the kernel writes in one piece (single_open in fs/proc/base.c)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(descriptor, _RECORD_BYTES)
        finally:
            os.close(descriptor)
    except OSError as error:
        _ignore_gone(error, path)
        return None
    if not data:
        return None
    try:
        return parse(data.decode("utf-8", "replace"))
    except (ValueError, IndexError) as error:
        raise CollectError(f"{path}: {error}") from error


def _ignore_gone(error: OSError, path: str | Path) -> None:
    """Ignores the errors of an ended or inaccessible process; EIO means inaccessible memory."""
    gone_or_closed = (FileNotFoundError, ProcessLookupError, PermissionError)
    if not isinstance(error, gone_or_closed) and error.errno != errno.EIO:
        raise CollectError(f"cannot read {path}: {error.strerror}") from error
