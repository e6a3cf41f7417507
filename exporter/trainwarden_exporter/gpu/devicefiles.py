"""Which processes hold device files of the GPU driver open, or mapped into their memory.

Device numbers: 195 is NVIDIA's character major, its minor the GPU's, 255 the driver as a whole
(Documentation/admin-guide/devices.txt); nvidia-uvm and nvidia-caps have majors that are given out
as they come, so these are looked up in the folder of the device files.
"""

from __future__ import annotations

import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs import PROC, Identity, Process, read_text

FILES_SECONDS = 10.0
"""How long it is believed that a process has none open; what it opens is seen that much later."""

MAPS_SECONDS = 20.0
"""The same for memory maps, which cost more to read: files closed while still mapped are rare."""

COMPUTE_FILE = "nvidia-uvm"
"""What every CUDA program opens, and what a program that only looks at GPUs does not."""

_NONE = frozenset[str]()

_NAME = re.compile(r"/(nvidia(?:\d+|ctl|-modeset|-uvm|-uvm-tools|-caps/nvidia-cap\d+))$")


class FileId(NamedTuple):
    """A file, by whatever path: a device by its number, anything else by its place on a disk."""

    kind: str
    first: int
    second: int


def read_device_files(folder: Path) -> dict[FileId, str]:
    """The driver's device files in `folder`, by what they are; empty without the driver."""
    found: dict[FileId, str] = {}
    for place in (folder, folder / "nvidia-caps"):
        try:
            names = os.listdir(place)  # noqa: PTH208 - each scrape: a Path for every device costs
        except OSError:
            continue
        for path in sorted(f"{place}/{name}" for name in names if name.startswith("nvidia")):
            match = _NAME.search(path)
            if match and (identity := _identity(path)) is not None:
                found[identity] = match[1]
    return found


@dataclass(slots=True)
class _Known:
    """What was seen of one process, as it was then, and until when that is believed."""

    process: Process
    opened: frozenset[str] = _NONE
    mapped: frozenset[str] = _NONE
    readable: bool = True
    files_until: float = 0.0
    maps_until: float = 0.0
    due: float = 0.0
    """When to look again, as long as it is the same process and runs the same program."""


class _Look(NamedTuple):
    """What is the same for all processes in one look; the times belong to the watch's clock."""

    files: Mapping[FileId, str]
    now: float
    files_until: float
    maps_until: float


@dataclass(frozen=True, slots=True)
class Sightings:
    """Names of the device files held, by process.

    `present` are those there are; `unreadable` counts processes that may not be looked into.
    """

    held: Mapping[Identity, frozenset[str]] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    unreadable: int = 0


class DeviceFileWatch:
    """Finds the processes that hold device files, without reading all of /proc each time.

    A process not seen before, one that has executed another program, and one that held a file last
    time are looked into at once; the others again after `FILES_SECONDS`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        root: Path = PROC,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._root = root
        self._clock = clock
        self._known: dict[int, _Known] = {}

    def find(self, processes: Iterable[Process]) -> Sightings:
        """Who of `processes` holds device files now. Nothing is remembered of any others."""
        files = read_device_files(self._folder)
        if not files:
            self._known = {}
            return Sightings()
        now = self._clock()
        look = _Look(files, now, now + FILES_SECONDS, now + MAPS_SECONDS)
        known: dict[int, _Known] = {}
        for process in processes:
            pid = process.identity.pid
            seen = self._known.get(pid)
            if seen is None or seen.process is not process or now >= seen.due:
                if process.kernel_thread or not (process.alive or process.threads > 1):
                    continue
                seen = self._look(process, seen, look)
            known[pid] = seen
        self._known = known
        return Sightings(
            {
                seen.process.identity: seen.opened | seen.mapped
                for seen in known.values()
                if seen.opened or seen.mapped
            },
            frozenset(files.values()),
            sum(not seen.readable for seen in known.values()),
        )

    def _look(self, process: Process, seen: _Known | None, look: _Look) -> _Known:
        if seen is None or seen.process.identity != process.identity:
            seen = _Known(process)
        elif seen.process.exec_mark != process.exec_mark:
            seen.files_until = seen.maps_until = look.now
        seen.process = process
        if seen.opened or look.now >= seen.files_until:
            opened = self._opened(process, look.files)
            seen.opened, seen.readable = opened or _NONE, opened is not None
            seen.files_until = look.files_until
        if seen.readable and (seen.mapped or look.now >= seen.maps_until):
            seen.mapped = self._mapped(process, look.files)
            seen.maps_until = look.maps_until
        if seen.opened or seen.mapped:
            seen.due = look.now
        else:
            seen.due = min(seen.files_until, seen.maps_until if seen.readable else math.inf)
        return seen

    def _opened(self, process: Process, files: Mapping[FileId, str]) -> frozenset[str] | None:
        """The names of those that are open; None when it may not be read."""
        names: set[str] = set()
        for folder in self._descriptor_folders(process):
            try:
                descriptors = os.listdir(folder)  # noqa: PTH208 - names only, and it is quicker
            except PermissionError:
                return None
            except OSError:
                continue  # it has ended
            for descriptor in descriptors:
                name = _held_by(f"{folder}/{descriptor}", files)
                if name is not None:
                    names.add(name)
        return frozenset(names)

    def _descriptor_folders(self, process: Process) -> Iterator[str]:
        if process.alive:
            yield f"{self._root}/{process.pid}/fd"
            return
        # its first thread has ended, and others hold on: what is stuck in the driver looks so
        tasks = f"{self._root}/{process.pid}/task"
        try:
            threads = os.listdir(tasks)  # noqa: PTH208 - as above
        except OSError:
            return
        yield from (f"{tasks}/{thread}/fd" for thread in threads)

    def _mapped(self, process: Process, files: Mapping[FileId, str]) -> frozenset[str]:
        try:
            text = read_text(f"{self._root}/{process.pid}/maps")
        except CollectError:  # whatever keeps the map from us, the open files have been read
            return frozenset()
        if text is None or "nvidia" not in text:
            return frozenset()
        return frozenset(parse_mapped(text, self._folder) & set(files.values()))


def parse_mapped(text: str, folder: Path) -> set[str]:
    """The names of the device files below `folder` that a /proc/<pid>/maps shows."""
    names = set()
    for line in text.splitlines():
        path = line.partition("/")
        match = _NAME.search(f"/{path[2]}".removesuffix(" (deleted)"))
        if match and f"/{path[2]}".startswith(f"{folder}/"):
            names.add(match[1])
    return names


def _held_by(descriptor: str, files: Mapping[FileId, str]) -> str | None:
    """The name of the device file behind a descriptor in /proc, None for anything else."""
    try:
        # the name first: asking a file on a dead network mount what it is would hang
        if not _NAME.search(os.readlink(descriptor).removesuffix(" (deleted)")):  # noqa: PTH115
            return None
    except OSError:
        return None
    identity = _identity(descriptor)
    return None if identity is None else files.get(identity)


def _identity(path: str) -> FileId | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - called often, and it is quicker
    except OSError:
        return None
    if stat.S_ISCHR(status.st_mode):
        return FileId("device", os.major(status.st_rdev), os.minor(status.st_rdev))
    return FileId("file", status.st_dev, status.st_ino)
