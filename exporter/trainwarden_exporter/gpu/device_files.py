"""Finds the processes that hold device files of the GPU driver open or mapped into memory.

The driver's device numbers are partly dynamic (nvidia-uvm, nvidia-caps; see
Documentation/admin-guide/devices.txt), so they are read from the folder of the device files.
"""

from __future__ import annotations

import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs import PROC, Identity, Process, read_text

OPEN_FILES_TTL_SECONDS = 10.0
"""Seconds for which a process without open device files is not read again."""

MAPS_TTL_SECONDS = 20.0
"""The same for memory maps, which cost more to read; mapped but closed files are rare."""

COMPUTE_FILE = "nvidia-uvm"
"""Device file that every CUDA program opens, and that monitoring tools do not open."""

_NONE = frozenset[str]()
_DEVICE_FILE = re.compile(r"/(nvidia(?:\d+|ctl|-modeset|-uvm|-uvm-tools|-caps/nvidia-cap\d+))$")


class FileId(NamedTuple):
    """Identity of a file, independent of its path: device number, or file system and inode."""

    kind: str
    first: int
    second: int


def read_device_files(folder: Path) -> dict[FileId, str]:
    """Returns the names of the driver's device files in `folder`; empty without a driver."""
    found: dict[FileId, str] = {}
    for directory in (folder, folder / "nvidia-caps"):
        try:
            names = os.listdir(directory)  # noqa: PTH208 - at each scrape, for many devices
        except OSError:
            continue
        for path in sorted(f"{directory}/{name}" for name in names if name.startswith("nvidia")):
            match = _DEVICE_FILE.search(path)
            if match and (identity := _file_id(path)) is not None:
                found[identity] = match[1]
    return found


@dataclass(slots=True)
class _CachedProcess:
    """Last scan of a process, and the times at which it expires."""

    process: Process
    opened: frozenset[str] = _NONE
    mapped: frozenset[str] = _NONE
    readable: bool = True
    files_until: float = 0.0
    maps_until: float = 0.0
    next_scan_at: float = 0.0
    """Time of the next scan, if the process and its program stay the same."""


@dataclass(frozen=True, slots=True)
class HeldDeviceFiles:
    """Names of the held device files by process.

    `present` are all device files; `unreadable` counts processes without permission to read.
    """

    held: Mapping[Identity, frozenset[str]] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    unreadable: int = 0


class DeviceFileScanner:
    """Finds the processes that hold device files, without reading all of /proc each time.

    New processes, processes with a new program and holders are read each time; others after
    `OPEN_FILES_TTL_SECONDS`.
    """

    def __init__(
        self, folder: Path, *, root: Path = PROC, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._root = root
        self._clock = clock
        self._cache: dict[int, _CachedProcess] = {}

    def find(self, processes: Iterable[Process]) -> HeldDeviceFiles:
        """Returns the device files held by `processes`; forgets all other processes."""
        files = read_device_files(self._folder)
        if not files:
            self._cache = {}
            return HeldDeviceFiles()
        now = self._clock()
        cache: dict[int, _CachedProcess] = {}
        for process in processes:
            pid = process.identity.pid
            cached = self._cache.get(pid)
            if cached is None or cached.process is not process or now >= cached.next_scan_at:
                if process.kernel_thread or not (process.alive or process.threads > 1):
                    continue
                cached = self._scan_process(process, cached, files, now)
            cache[pid] = cached
        self._cache = cache
        return HeldDeviceFiles(
            {
                cached.process.identity: cached.opened | cached.mapped
                for cached in cache.values()
                if cached.opened or cached.mapped
            },
            frozenset(files.values()),
            sum(not cached.readable for cached in cache.values()),
        )

    def _scan_process(
        self,
        process: Process,
        cached: _CachedProcess | None,
        files: Mapping[FileId, str],
        now: float,
    ) -> _CachedProcess:
        if cached is None or cached.process.identity != process.identity:
            cached = _CachedProcess(process)
        elif cached.process.exec_mark != process.exec_mark:
            cached.files_until = cached.maps_until = now
        cached.process = process
        if cached.opened or now >= cached.files_until:
            opened = self._read_open_files(process, files)
            cached.opened, cached.readable = opened or _NONE, opened is not None
            cached.files_until = now + OPEN_FILES_TTL_SECONDS
        if cached.readable and (cached.mapped or now >= cached.maps_until):
            cached.mapped = self._read_mapped_files(process, files)
            cached.maps_until = now + MAPS_TTL_SECONDS
        if cached.opened or cached.mapped:
            cached.next_scan_at = now
        else:
            cached.next_scan_at = min(
                cached.files_until, cached.maps_until if cached.readable else math.inf
            )
        return cached

    def _read_open_files(
        self, process: Process, files: Mapping[FileId, str]
    ) -> frozenset[str] | None:
        """Returns the names of open device files; None without permission."""
        names: set[str] = set()
        for folder in self._descriptor_folders(process):
            try:
                descriptors = os.listdir(folder)  # noqa: PTH208 - faster, and only names are needed
            except PermissionError:
                return None
            except OSError:
                continue  # the process has ended
            opened = (
                _device_file_of(f"{folder}/{descriptor}", files) for descriptor in descriptors
            )
            names.update(name for name in opened if name is not None)
        return frozenset(names)

    def _descriptor_folders(self, process: Process) -> Iterator[str]:
        if process.alive:
            yield f"{self._root}/{process.pid}/fd"
            return
        # its first thread has ended and others remain, as in a process stuck in the driver
        tasks = f"{self._root}/{process.pid}/task"
        with suppress(OSError):
            yield from (f"{tasks}/{thread}/fd" for thread in os.listdir(tasks))  # noqa: PTH208

    def _read_mapped_files(self, process: Process, files: Mapping[FileId, str]) -> frozenset[str]:
        try:
            text = read_text(f"{self._root}/{process.pid}/maps")
        except CollectError:  # the open files have been read nevertheless
            return frozenset()
        if text is None or "nvidia" not in text:
            return frozenset()
        return frozenset(parse_mapped(text, self._folder) & set(files.values()))


def parse_mapped(text: str, folder: Path) -> set[str]:
    """Returns the names of the device files below `folder` in the text of a /proc/<pid>/maps."""
    names = set()
    for line in text.splitlines():
        path = "/" + line.partition("/")[2]
        match = _DEVICE_FILE.search(path.removesuffix(" (deleted)"))
        if match and path.startswith(f"{folder}/"):
            names.add(match[1])
    return names


def _device_file_of(descriptor: str, files: Mapping[FileId, str]) -> str | None:
    """Returns the name of the device file behind a descriptor in /proc; None for other files."""
    try:
        # the name first: stat of a file on a dead network mount would hang
        if not _DEVICE_FILE.search(os.readlink(descriptor).removesuffix(" (deleted)")):  # noqa: PTH115
            return None
    except OSError:
        return None
    identity = _file_id(descriptor)
    return None if identity is None else files.get(identity)


def _file_id(path: str) -> FileId | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - faster, and called often
    except OSError:
        return None
    if stat.S_ISCHR(status.st_mode):
        return FileId("device", os.major(status.st_rdev), os.minor(status.st_rdev))
    return FileId("file", status.st_dev, status.st_ino)
