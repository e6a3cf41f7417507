"""Parses the files of /proc/<pid>; see proc(5) and Documentation/filesystems/proc.rst."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass
from typing import NamedTuple

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ARG_START = 45  # from the state on, which is the first; see proc_pid_stat(5)
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD in include/linux/sched.h


class Identity(NamedTuple):
    """A process: pid and start time, because pids are reused.

    `start_ticks` counts clock ticks (1/100 s) since boot.
    """

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Process:
    """One line of /proc/<pid>/stat.

    `name` is the comm: at most 15 bytes, and a process may choose it. `state` is one letter, of
    the main thread, or of another one if the main thread has ended. `cpu_seconds` leaves out
    children. `resident_bytes` is the kernel's quick estimate; see `read_resident_bytes`.
    `exec_mark` changes when the process executes another program or renames itself.
    """

    identity: Identity
    parent_pid: int
    name: str
    state: str
    threads: int
    cpu_seconds: float
    resident_bytes: int
    exec_mark: tuple[str, int]
    kernel_thread: bool = False

    @property
    def pid(self) -> int:
        return self.identity.pid

    @property
    def alive(self) -> bool:
        """Whether it runs; a zombie has ended and waits to be reaped."""
        return self.state not in "ZXx"


class Cgroup(NamedTuple):
    """One line of /proc/<pid>/cgroup; `controllers` is empty for cgroup v2."""

    controllers: str
    path: str


class Transfers(NamedTuple):
    """Storage bytes read and written by a process and its reaped children."""

    read_bytes: int
    written_bytes: int


def parse_stat(text: str) -> Process:
    """Parses a /proc/<pid>/stat.

    Raises ValueError for an invalid line.
    """
    head, closing, tail = text.rpartition(")")  # the name itself may hold ")", spaces, newlines
    pid, _, name = head.partition(" (")
    name = sys.intern(name)  # a crowd has few, and each of it is remembered
    fields = tail.split(maxsplit=_ARG_START + 1)
    try:
        return Process(
            Identity(int(pid), int(fields[19])),
            int(fields[1]),
            name,
            fields[0],
            int(fields[17]),
            (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND,
            int(fields[21]) * _PAGE_BYTES,
            # 0 without permission to trace; the name serves as a substitute
            (name, int(fields[_ARG_START])),
            bool(int(fields[6]) & _KERNEL_THREAD),
        )
    except (IndexError, ValueError):
        raise ValueError(f"not a process: {head[:40]!r}{closing}{tail[:40]!r}") from None


def parse_command_line(data: bytes) -> tuple[str, ...]:
    """Returns the arguments in a /proc/<pid>/cmdline; a process title is padded with NULs."""
    text = data.decode("utf-8", "replace").rstrip("\0")
    return tuple(text.split("\0")) if text else ()


def parse_environment(data: bytes) -> dict[str, str]:
    """Returns the variables in a /proc/<pid>/environ; the first of duplicates counts (getenv)."""
    variables: dict[str, str] = {}
    for entry in data.decode("utf-8", "replace").split("\0"):
        name, equals, value = entry.partition("=")
        if equals:
            variables.setdefault(name, value)
    return variables


def parse_cgroups(text: str) -> tuple[Cgroup, ...]:
    """Returns the lines of a /proc/<pid>/cgroup: `hierarchy:controllers:path`, see cgroups(7)."""
    lines = (line.split(":", 2) for line in text.splitlines())
    return tuple(
        Cgroup(parts[1], parts[2].removesuffix(" (deleted)"))
        for parts in lines
        if len(parts) == 3  # noqa: PLR2004 - the three parts of the docstring
    )


def parse_transfers(text: str) -> Transfers:
    """Returns the storage bytes in a /proc/<pid>/io. Raises ValueError if they are missing."""
    return Transfers(int(_line(text, "read_bytes:")), int(_line(text, "write_bytes:")))


def parse_open_files_limit(text: str) -> float:
    """Returns the soft limit `Max open files` in a /proc/<pid>/limits; inf for unlimited."""
    value = _line(text, "Max open files").split()[0]
    return math.inf if value == "unlimited" else float(value)


class Pss(NamedTuple):
    """Bytes of memory, with shared pages divided among their users; `mapped`: those of files."""

    total: int
    mapped: int


def parse_pss(text: str) -> Pss:
    """Returns the lines `Pss` and `Pss_File`, of Linux 5.4, of a /proc/<pid>/smaps_rollup."""
    mapped = _line(text, "Pss_File:") if "\nPss_File:" in text else "0"
    return Pss(*(int(line.split()[0]) * 1024 for line in (_line(text, "Pss:"), mapped)))


def parse_mapped_bytes(text: str) -> int:
    """Returns the resident bytes of mapped files in a /proc/<pid>/status, of Linux 4.5.

    0 for what has ended, or is a thread of the kernel: the line is missing.
    """
    return int(_line(text, "RssFile:").split()[0]) * 1024 if "\nRssFile:" in text else 0


def parse_resident_bytes(text: str) -> int:
    """Returns the resident bytes in a /proc/<pid>/statm, which counts pages."""
    return int(text.split()[1]) * _PAGE_BYTES


def _line(text: str, beginning: str) -> str:
    """Returns the rest of the first line with this start. Raises ValueError without one."""
    _, found, rest = f"\n{text}".partition(f"\n{beginning}")
    if not found:
        raise ValueError(f"no line {beginning.removesuffix(':')!r}")
    return rest.partition("\n")[0]
