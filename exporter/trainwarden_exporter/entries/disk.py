"""What is asked of the file system on which entries lie, in one place: a test can count or stop it.

All of it blocks as long as the disk does, and raises OSError.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from itertools import islice
from typing import Literal, NamedTuple

MOST_NAMES = 200_000
"""Names that are read of one folder."""

MOST_KINDS = 20_001
"""Names that are read with what kind of thing each is: `walking` looks at so many of an entry."""

LARGEST_TEXT = 64 << 20
"""Bytes that are read of a file; a `trainer_state.json` grows with the run."""

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ELOOP, errno.ENAMETOOLONG)
_DENIED = (errno.EACCES, errno.EPERM)


class Named(NamedTuple):
    """A name in a folder. A link is told from what it leads to."""

    name: str
    kind: Literal["folder", "file", "link"]


class Disk:
    """The file system as it is."""

    def listed(self, folder: str) -> Iterator[str]:
        """The names in `folder`, read as they are asked for."""
        with os.scandir(folder) as entries:
            yield from (entry.name for entry in islice(entries, MOST_NAMES))

    def names(self, folder: str) -> list[Named]:
        """What lies in `folder`; this alone asks nothing about each name."""
        with os.scandir(folder) as entries:
            return [Named(entry.name, _kind(entry)) for entry in islice(entries, MOST_KINDS)]

    def status(self, path: str) -> os.stat_result:
        """Of what `path` is or leads to."""
        return os.stat(path)  # noqa: PTH116 - a Path for each of many files costs

    def text(self, path: str) -> str:
        """The text of a regular file; nothing of any other, and of a larger one its beginning."""
        # without O_NONBLOCK, opening a pipe that nobody writes to never returns
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - a Path cannot be opened with flags
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return ""
            return file.read(min(status.st_size, LARGEST_TEXT)).decode("utf-8", "replace")


def is_gone(error: OSError) -> bool:
    """Whether it is not there any more, or leads nowhere."""
    return error.errno in _GONE


def is_denied(error: OSError) -> bool:
    """Whether it may not be looked at by us."""
    return error.errno in _DENIED


def _kind(entry: os.DirEntry[str]) -> Literal["folder", "file", "link"]:
    try:
        if entry.is_symlink():
            return "link"
        return "folder" if entry.is_dir(follow_symlinks=False) else "file"
    except (
        OSError
    ):  # where the file system does not tell kinds by name, it is asked and may be gone
        return "file"
