"""Walks through one entry: which files it consists of."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trainwarden_exporter.entries.disk import Disk, Named, is_gone
from trainwarden_exporter.layouts.proofs import FileSeen

MOST_FILES = 20_000
"""Names that are looked at in one entry; of one with more, nothing can be said."""

MOST_FOLDERS = 8
"""Folders in an entry that are told with their stamps."""

_PASSING = re.compile(
    r"(?:^|/)(?:tmp|\.nfs)[^/]*$|\.(?:tmp|temp|part|partial|incomplete|lock|swp)(?:[._-][^/]*)?$|~$"
)


class Stamp(NamedTuple):
    """An entry itself: which one it is, and when a name came into it or went last."""

    device: int
    inode: int
    modified_ns: int

    @property
    def modified(self) -> float:
        """In Unix seconds."""
        return self.modified_ns / 1e9

    def same_as(self, other: Stamp) -> bool:
        """Whether it is the same one, changed or not."""
        return (self.device, self.inode) == (other.device, other.inode)


@dataclass(frozen=True, slots=True)
class Walk:
    """One entry as it was found."""

    stamp: Stamp
    files: Mapping[str, FileSeen]
    """By path relative to the entry; for an entry that is itself a file, by the empty path."""
    folders: Mapping[str, Stamp] = field(default_factory=dict)
    """The folders in it, as far as they are few."""
    moving: bool = False
    """Whether a file went away meanwhile, so that this was never all there at once."""
    cut: bool = False
    """Whether there was more than is looked at."""
    questions: int = 1
    """How often the disk was asked."""


def walk(disk: Disk, path: str, *, most: int = MOST_FILES) -> Walk:
    """The files of the entry at `path`, which may itself be a link.

    Links to files inside it count as files; links to folders are not followed, so that there are no
    loops. Raises OSError: FileNotFoundError where it is gone.
    """
    status = disk.status(path)
    stamp = stamp_of(status)
    if not stat.S_ISDIR(status.st_mode):
        regular = stat.S_ISREG(status.st_mode)
        return Walk(stamp, {"": file_seen(status)} if regular else {})
    return _Tour(disk, path).through(stamp, most)


class _Tour:
    """One way through all folders of an entry."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._files: dict[str, FileSeen] = {}
        self._stamps: dict[str, Stamp] = {}
        self._moving = False

    def through(self, stamp: Stamp, most: int) -> Walk:
        folders, questions = [""], 1
        while folders and questions <= most:
            folder = folders.pop()
            names = self._names(folder)
            questions += 2 + len(names)
            if questions <= most:
                for named in names:
                    if named.kind == "folder":
                        folders.append(f"{folder}{named.name}/")
                    else:
                        self._look(f"{folder}{named.name}", named)
        return Walk(
            stamp,
            self._files,
            self._stamps,
            self._moving,
            cut=questions > most,
            questions=questions,
        )

    def _names(self, folder: str) -> list[Named]:
        path = f"{self._path}/{folder}"
        try:
            # first its stamp, so that what comes later is noticed the next time
            if folder and len(self._stamps) < MOST_FOLDERS:
                self._stamps[folder] = stamp_of(self._disk.status(path))
            return self._disk.names(path)
        except OSError as error:
            if not is_gone(error) or not folder:
                raise
            self._moving = True
            return []

    def _look(self, inner: str, named: Named) -> None:
        try:
            status = self._disk.status(f"{self._path}/{inner}")
        except OSError as error:
            # a link may also lead nowhere, or in a circle
            if not is_gone(error) and named.kind != "link":
                raise
            if named.kind != "link" and not is_passing(inner):
                self._moving = True
            return
        if stat.S_ISREG(status.st_mode):
            self._files[inner] = file_seen(status)


def is_passing(path: str) -> bool:
    """Whether a file of such a name is meant to go away: it proves nothing that it did."""
    return _PASSING.search(path) is not None


def file_seen(status: os.stat_result) -> FileSeen:
    return FileSeen(status.st_size, status.st_mtime)


def stamp_of(status: os.stat_result) -> Stamp:
    return Stamp(status.st_dev, status.st_ino, status.st_mtime_ns)
