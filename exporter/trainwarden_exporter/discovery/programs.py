"""The programs on the box that may belong to a run: what they were started with, and write to."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.processes.procfs import (
    PROC,
    Process,
    parent,
    read_command_line,
    read_processes,
)

MOST_FILES = 4_096
"""Descriptors that are looked at of one process."""

_WRITABLE = os.O_WRONLY | os.O_RDWR
_FLAGS = re.compile(r"^flags:\s+([0-7]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Program:
    """One process, as far as we may look into it."""

    pid: int
    arguments: tuple[str, ...]
    parent: int = 0
    folder: Path | None = None
    """Where it works."""
    written: tuple[Path, ...] = ()
    """Regular files that it has open for writing, its output and errors first."""

    @property
    def command(self) -> str:
        """As a selector's `command` sees it."""
        return " ".join(self.arguments)

    def works_in(self, folder: Path) -> bool:
        """Whether it was started there, told of it, or writes there."""
        places = (*self.written, *((self.folder,) if self.folder else ()))
        return any(place.is_relative_to(folder) for place in places) or any(
            self._names(argument, folder) for argument in self.arguments
        )

    def _names(self, argument: str, folder: Path) -> bool:
        """Whether `argument` is, or holds after an equals sign, `folder` or a path below it."""
        value = argument.rpartition("=")[2]
        if not value or value.startswith("-") or "\0" in value:
            return False
        return ((self.folder or Path("/")) / value).is_relative_to(folder)


def read_programs(root: Path = PROC) -> tuple[Program, ...]:
    """Every process that has a command line, but for this one and what stands above it.

    Raises CollectError where /proc cannot be read.
    """
    processes = read_processes(root)
    ours = set(_line_of(os.getpid(), processes))
    return tuple(
        program
        for process in processes.values()
        if process.alive and not process.kernel_thread and process.pid not in ours
        if (program := _read_program(process, root)) is not None
    )


def _read_program(process: Process, root: Path) -> Program | None:
    arguments = read_command_line(process.pid, root)
    if not arguments:
        return None
    place = root / str(process.pid)
    try:
        folder: Path | None = (place / "cwd").readlink()
    except OSError:
        folder = None
    written = tuple(dict.fromkeys(_written(place)))
    return Program(process.pid, arguments, process.parent_pid, folder, written)


def _written(place: Path) -> Iterator[Path]:
    try:
        numbers = sorted((int(name) for name in os.listdir(place / "fd")), key=_output_first)  # noqa: PTH208 - names are enough
    except (OSError, ValueError):
        return
    for number in numbers[:MOST_FILES]:
        try:
            link = place / "fd" / str(number)
            status = link.stat()
            if not stat.S_ISREG(status.st_mode) or not status.st_nlink:  # deleted, yet open
                continue
            flags = _FLAGS.search((place / "fdinfo" / str(number)).read_text())
            if flags is not None and int(flags[1], 8) & _WRITABLE:
                yield link.readlink()
        except OSError:
            continue


def _output_first(number: int) -> tuple[bool, int]:
    return number not in (1, 2), number


def _line_of(pid: int, processes: Mapping[int, Process]) -> Iterator[int]:
    step = processes.get(pid)
    while step is not None and step.pid > 1:
        yield step.pid
        step = parent(step, processes)


def topmost(programs: Collection[Program], everything: Collection[Program]) -> tuple[Program, ...]:
    """Those of `programs` that no other of them has started; the line goes over `everything`."""
    above = lines_above(everything)
    chosen = {program.pid for program in programs}
    return tuple(program for program in programs if not chosen & set(above[program.pid]))


def lines_above(programs: Collection[Program]) -> dict[int, tuple[int, ...]]:
    """By pid, the pids of the parent, its parent and so on, as far as they are among `programs`."""
    parents = {program.pid: program.parent for program in programs}
    lines = {}
    for pid, parent_pid in parents.items():
        line: list[int] = []
        step = parent_pid
        while step in parents and step != pid and step not in line:
            line.append(step)
            step = parents[step]
        lines[pid] = tuple(line)
    return lines
