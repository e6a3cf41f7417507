"""Walks the files of one entry."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trainwarden_exporter.frameworks.completeness_rules import FileInfo, FolderContent
from trainwarden_exporter.step_dirs.filesystem import FileSystem, FolderItem, is_gone

MAX_FILES = 20_000
"""Maximum number of names in one entry; larger entries are not assessed."""

MAX_FOLDERS = 8
"""Maximum number of folders of an entry whose stamps are kept."""

_TEMPORARY = re.compile(
    r"(?:^|/)(?:tmp|\.nfs)[^/]*$|\.(?:tmp|temp|part|partial|incomplete|lock|swp)(?:[._-][^/]*)?$|~$"
)


class Stamp(NamedTuple):
    """Identity of an entry, and when a name in it was last added or removed."""

    device: int
    inode: int
    modified_ns: int

    @property
    def modified(self) -> float:
        """In Unix seconds."""
        return self.modified_ns / 1e9

    def same_as(self, other: Stamp) -> bool:
        """Whether it is the same entry, changed or not."""
        return (self.device, self.inode) == (other.device, other.inode)


@dataclass(frozen=True, slots=True)
class WalkResult:
    """One entry as found."""

    stamp: Stamp
    files: Mapping[str, FileInfo]
    """By path relative to the entry; a file entry has the empty path."""
    folders: Mapping[str, Stamp] = field(default_factory=dict)
    """The folders in it, if few."""
    changed_during_walk: bool = False
    """Whether a file disappeared meanwhile, so that the result is not consistent."""
    truncated: bool = False
    """Whether the entry exceeds the limits."""
    disk_calls: int = 1
    """Number of disk calls."""


def walk(filesystem: FileSystem, path: str, *, max_files: int = MAX_FILES) -> WalkResult:
    """Returns the files of the entry at `path`, which may be a link.

    Links to files count as files; links to folders are not followed, which prevents loops. Raises
    OSError: FileNotFoundError if it is gone.
    """
    status = filesystem.status(path)
    stamp = stamp_of(status)
    if not stat.S_ISDIR(status.st_mode):
        regular = stat.S_ISREG(status.st_mode)
        return WalkResult(stamp, {"": file_info(status)} if regular else {})
    return _TreeWalk(filesystem, path).run(stamp, max_files)


class _TreeWalk:
    """One walk through all folders of an entry."""

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self._files: dict[str, FileInfo] = {}
        self._stamps: dict[str, Stamp] = {}
        self._changed_during_walk = False

    def run(self, stamp: Stamp, max_files: int) -> WalkResult:
        folders, disk_calls = [""], 1
        while folders and disk_calls <= max_files:
            folder = folders.pop()
            names = self._names(folder)
            disk_calls += 2 + len(names)
            if disk_calls <= max_files:
                for named in names:
                    # interned: the same paths occur in each entry
                    if named.kind == "folder":
                        folders.append(sys.intern(f"{folder}{named.name}/"))
                    else:
                        self._add_file(sys.intern(f"{folder}{named.name}"), named)
        return WalkResult(
            stamp,
            self._files,
            self._stamps,
            self._changed_during_walk,
            truncated=disk_calls > max_files,
            disk_calls=disk_calls,
        )

    def _names(self, folder: str) -> list[FolderItem]:
        path = f"{self._path}/{folder}"
        try:
            # stamp first, so that later changes are noticed next time
            if folder and len(self._stamps) < MAX_FOLDERS:
                self._stamps[folder] = stamp_of(self._filesystem.status(path))
            return self._filesystem.list_folder(path)
        except OSError as error:
            if not is_gone(error) or not folder:
                raise
            self._changed_during_walk = True
            return []

    def _add_file(self, inner: str, named: FolderItem) -> None:
        try:
            status = self._filesystem.status(f"{self._path}/{inner}")
        except OSError as error:
            # a link may also lead nowhere, or in a circle
            if not is_gone(error) and named.kind != "link":
                raise
            if named.kind != "link" and not is_temporary(inner):
                self._changed_during_walk = True
            return
        if stat.S_ISREG(status.st_mode):
            self._files[inner] = file_info(status)


def is_temporary(path: str) -> bool:
    """Whether a file name is temporary, so that its disappearance proves nothing."""
    return _TEMPORARY.search(path) is not None


def file_info(status: os.stat_result) -> FileInfo:
    return FileInfo(status.st_size, status.st_mtime)


def stamp_of(status: os.stat_result) -> Stamp:
    return Stamp(status.st_dev, status.st_ino, status.st_mtime_ns)


class FolderFiles:
    """The files around the entries that a rule reads; read again when they have changed."""

    def __init__(self, filesystem: FileSystem, folder: str, names: Iterable[str]) -> None:
        self.changed = False
        self._filesystem = filesystem
        self._folder = folder
        self._names = tuple(dict.fromkeys(names))
        self._seen: dict[str, tuple[tuple[int, int, int], str]] = {}

    def read(self, now: float) -> FolderContent:
        before, self._seen = self._seen, {}
        modified = {}
        for name in self._names:
            path = f"{self._folder}/{name}"
            try:
                status = self._filesystem.status(path)
                mark = (status.st_ino, status.st_size, status.st_mtime_ns)
                known = before.get(name)
                text = known[1] if known and known[0] == mark else self._filesystem.text(path)
            except OSError as error:
                if not is_gone(error):
                    raise
                continue
            self._seen[name] = (mark, text)
            modified[name] = status.st_mtime
        self.changed = self._seen != before
        return FolderContent({name: text for name, (_, text) in self._seen.items()}, now, modified)
