"""Reads the processes of the host that may belong to a run, with their arguments and open files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from trainwarden_exporter.config import Config, announcements_folder, with_announced
from trainwarden_exporter.processes.announcements import read_announcements
from trainwarden_exporter.processes.config import workers_by_key
from trainwarden_exporter.processes.matching import Matcher
from trainwarden_exporter.processes.procfs import (
    PROC,
    read_cgroups,
    read_command_line,
    read_environment,
    read_processes,
    read_text,
)

TEXT_SUFFIXES = frozenset({".log", ".out", ".err", ".txt"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """One process, as far as it is readable."""

    pid: int
    arguments: tuple[str, ...]
    parent: int = 0
    folder: Path | None = None
    """Working directory."""
    written: tuple[Path, ...] = ()
    """Regular files open for writing; standard output and error first."""
    user: str = ""
    """Account; empty if unknown."""
    session: int = 0
    """Session id; 0 if unknown."""
    cgroup: str = ""
    """Path of the cgroup, if it belongs to one service, container or job; else empty."""
    start_folder: Path | None = None
    """The variable PWD at its start."""
    started: float = 0.0
    """Unix seconds."""
    memory: int = 0
    """Resident bytes now."""
    memory_peak: int = 0
    """Most resident bytes since it started."""

    @property
    def outputs(self) -> tuple[Path, ...]:
        """Standard output and error, as far as they are files; `written` may hold others too."""
        first, others = self.written[:1], self.written[1:2]
        return (*first, *filter(self.is_named_like_a_log, others))

    def is_named_like_a_log(self, path: Path) -> bool:
        """A file that is named after the process, as Ray names some, is not that of the next one.

        So it is no log of the run.
        """
        named_after_it = re.search(rf"(?<!\d){self.pid}(?!\d)", path.name)
        return path.suffix in TEXT_SUFFIXES and named_after_it is None

    @property
    def command(self) -> str:
        """The command line as matched by a selector's `command`."""
        return " ".join(self.arguments)

    def is_of_folder(self, folder: Path) -> bool:
        """Whether the condition `cwd` of a selector holds."""
        paths = (self.folder, self.start_folder)
        return any(path is not None and path.is_relative_to(folder) for path in paths)

    def uses_folder(self, folder: Path) -> bool:
        """Whether the process was started in the folder, names it, or writes to it."""
        paths = (*self.written, *((self.folder,) if self.folder else ()))
        return any(path.is_relative_to(folder) for path in paths) or any(
            self._names(argument, folder) for argument in self.arguments
        )

    def _names(self, argument: str, folder: Path) -> bool:
        """Whether `argument`, or its part after an equals sign, is `folder` or a path below it."""
        value = argument.rpartition("=")[2]
        if not value or value.startswith("-") or "\0" in value:
            return False
        return ((self.folder or Path("/")) / value).is_relative_to(folder)


def read_candidates() -> tuple[Candidate, ...]:
    """Returns every process with a command line, except this one and its ancestors.

    Raises OSError or psutil.Error if /proc cannot be read.
    """
    ours = {os.getpid(), *(ancestor.pid for ancestor in psutil.Process().parents())} - {1}
    found = []
    for process in psutil.process_iter(
        ["ppid", "cwd", "open_files", "username", "create_time", "memory_info"]
    ):
        # psutil would split the title that a process has set
        arguments = None if process.pid in ours else read_command_line(process.pid)
        if arguments:
            info, folder = process.info, process.info["cwd"]
            found.append(
                Candidate(
                    process.pid,
                    arguments,
                    info["ppid"] or 0,
                    Path(folder) if folder else None,
                    tuple(_written(info["open_files"] or ())),
                    user=info["username"] or "",
                    session=_session(process.pid),
                    cgroup=_own_cgroup(process.pid),
                    start_folder=_start_folder(process.pid, arguments, folder),
                    started=info["create_time"] or 0.0,
                    memory=info["memory_info"].rss if info["memory_info"] else 0,
                    memory_peak=_memory_peak(process.pid),
                )
            )
    return tuple(found)


def _start_folder(pid: int, arguments: Sequence[str], current: str | None) -> Path | None:
    """Returns PWD; None where that is the starter's folder: a script named is only in `current`."""
    folder = (read_environment(pid) or {}).get("PWD", "")
    if not folder.startswith("/"):
        return None
    scripts = [one for one in arguments if one.endswith((".py", ".sh")) and not one.startswith("/")]
    there = any(_exists(Path(folder, script)) for script in scripts)
    here = any(_exists(Path(current, script)) for script in scripts) if current else False
    return Path(folder) if there or not here else None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def _own_cgroup(pid: int) -> str:
    """Returns the cgroup of one service, container or job; empty for a login session or none."""
    paths = (path for _, path in read_cgroups(pid) or ())
    return next((path for path in paths if _OWN_CGROUP.search(path)), "")


_OWN_CGROUP = re.compile(
    r"/(?!user@)[^/]+\.service(?:/|$)|/(?:docker|kubepods|libpod|lxc)|/job_\d+|-[0-9a-f]{64}\b"
)


def _memory_peak(pid: int) -> int:
    """Returns the most resident bytes that the process had (proc(5), VmHWM); 0 if unknown."""
    text = read_text(f"{PROC}/{pid}/status") or ""
    found = re.search(r"^VmHWM:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) << 10 if found else 0


def _written(files: Iterable[Any]) -> Iterator[Path]:
    """Yields the files that are open for writing, each once; standard output and error first."""
    in_order = sorted(files, key=lambda file: (file.fd not in (1, 2), file.fd))
    yield from dict.fromkeys(Path(file.path) for file in in_order if file.mode != "r")


def topmost(
    candidates: Collection[Candidate], all_candidates: Collection[Candidate]
) -> tuple[Candidate, ...]:
    """Returns the `candidates` without the descendants of other candidates."""
    above = ancestor_pids(all_candidates)
    chosen = {candidate.pid for candidate in candidates}
    return tuple(candidate for candidate in candidates if not chosen & set(above[candidate.pid]))


def ancestor_pids(candidates: Collection[Candidate]) -> dict[int, tuple[int, ...]]:
    """Returns the ancestors of each pid, as far as they are among `candidates`."""
    parents = {candidate.pid: candidate.parent for candidate in candidates}
    ancestors = {}
    for pid, parent_pid in parents.items():
        path: list[int] = []
        current = parent_pid
        while current in parents and current != pid and current not in path:
            path.append(current)
            current = parents[current]
        ancestors[pid] = tuple(path)
    return ancestors


def announced_processes() -> dict[int, str]:
    """Returns the name of its run for each process of an announced run, by pid.

    Raises CollectError if the processes cannot be listed.
    """
    announced = read_announcements(announcements_folder(Config()), time.time())
    config, _ = with_announced(Config(), announced)
    selectors = {key: worker.match for key, worker in workers_by_key(config.runs).items()}
    trees = Matcher(selectors).assign(read_processes())
    return {process.pid: key.run for key, tree in trees.items() for process in tree.members}
