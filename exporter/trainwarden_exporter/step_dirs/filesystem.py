"""File system access for step directories, in one place so that tests can count or stop it.

All methods block as long as the disk does, and raise OSError.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import islice
from typing import Literal, NamedTuple

from trainwarden_exporter.runtime.safe_open import (
    ForeignLinkError,
    file_status,
    open_regular,
    scan_folder,
)

MAX_NAMES = 2_000_000
"""Maximum number of names read from one folder."""

MAX_TYPED_NAMES = 20_001
"""Names that are read with what kind of thing each is: `walking` looks at so many of an entry."""

MAX_TEXT_BYTES = 32 << 20
"""Maximum number of bytes read from a file; a `trainer_state.json` grows with the run."""

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ELOOP, errno.ENAMETOOLONG)
_DENIED = (errno.EACCES, errno.EPERM)


class FolderItem(NamedTuple):
    """A name in a folder. A link is distinguished from its target."""

    name: str
    kind: Literal["folder", "file", "link"]


class FileSystem:
    """The real file system."""

    def iter_names(self, folder: str) -> Iterator[str]:
        """Yields the names in `folder` lazily."""
        with scan_folder(folder) as entries:
            yield from (entry.name for entry in islice(entries, MAX_NAMES))

    def list_folder(self, folder: str) -> list[FolderItem]:
        """Returns the items in `folder` without querying each."""
        with scan_folder(folder) as entries:
            return [
                FolderItem(entry.name, _kind(entry)) for entry in islice(entries, MAX_TYPED_NAMES)
            ]

    def status(self, path: str) -> os.stat_result:
        """Returns the status of `path` or of its target."""
        return file_status(path)

    def text(self, path: str) -> str:
        """Returns the text of a regular file, cut to the limit; empty for any other file."""
        descriptor = _open(path)
        if descriptor is None:
            return ""
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            return file.read(min(size, MAX_TEXT_BYTES)).decode("utf-8", "replace")

    def part(self, path: str, start: int, size: int) -> bytes:
        """Returns up to `size` bytes of a regular file from `start`; empty for any other file."""
        descriptor = _open(path)
        if descriptor is None:
            return b""
        try:
            return os.pread(descriptor, size, start)
        finally:
            os.close(descriptor)


def is_gone(error: OSError) -> bool:
    """Whether the path no longer exists, or leads nowhere."""
    return error.errno in _GONE


def is_denied(error: OSError) -> bool:
    """Whether access is denied."""
    return error.errno in _DENIED


def _open(path: str) -> int | None:
    """Returns None for what `open_regular` does not open: the rest of the entry still counts."""
    try:
        return open_regular(path)
    except ForeignLinkError:
        return None


def _kind(entry: os.DirEntry[str]) -> Literal["folder", "file", "link"]:
    try:
        if entry.is_symlink():
            return "link"
        return "folder" if entry.is_dir(follow_symlinks=False) else "file"
    except OSError:  # some file systems need a further call, and the entry may be gone
        return "file"
