"""Opens and reads log files safely."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from trainwarden_exporter.logs.state import FINGERPRINT_BYTES, Bookmark, FileKey
from trainwarden_exporter.runtime.safe_open import file_status, open_regular

COMPRESSED_SUFFIXES = frozenset({".gz", ".xz", ".zst", ".bz2", ".lz4", ".zip"})
"""Suffixes of rotated logs that were read before compression."""

MAX_NAMES = 10_000
"""Maximum number of names in a folder to search."""


def file_key(status: os.stat_result) -> FileKey:
    return FileKey(status.st_dev, status.st_ino)


def read_status(path: str) -> os.stat_result | None:
    """Returns the status of the regular file at `path`; None for anything else.

    Raises OSError if it is inaccessible.
    """
    try:
        status = file_status(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def open_file(path: str, key: FileKey | None = None) -> int | None:
    """Opens the regular file at `path`; returns None without one, or if it is not that of `key`.

    Follows no link of an account that owns neither the file nor this program (see `open_handle`).
    Raises OSError if the file is unreadable.
    """
    try:
        descriptor = open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if descriptor is not None and key not in (None, file_key(os.fstat(descriptor))):
        os.close(descriptor)
        return None
    return descriptor


def next_data_offset(descriptor: int, offset: int) -> int | None:
    """Returns the next offset with data from `offset` on; None if only a hole follows.

    A writer that continues at its old position in a truncated file leaves a hole, which is not
    read.
    """
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError:
        return None


def read_head(descriptor: int) -> bytes:
    """Returns the bytes of the first fingerprint."""
    return os.pread(descriptor, FINGERPRINT_BYTES, 0)


def matches_bookmark(descriptor: int, bookmark: Bookmark) -> bool:
    """Whether the file starts with the content of the file of `bookmark`, by its fingerprints."""
    tail = os.pread(descriptor, bookmark.tail.size, bookmark.offset - bookmark.tail.size)
    size = os.fstat(descriptor).st_size
    return (
        size >= bookmark.offset
        and bookmark.head.matches(read_head(descriptor))
        and bookmark.tail.matches(tail)
    )


def is_rotated_name(name: str, original: str) -> bool:
    """Whether `name` is a rotated name of `original`.

    `trainer.log.1`, `trainer.log-20261121`, and before the suffix `trainer-20261121.log`.
    """
    stem, dot, suffix = original.rpartition(".")
    if name.startswith(original):
        return name[len(original) : len(original) + 1] in (".", "-", "_")
    inside = name.removeprefix(stem) if stem and name.startswith(stem) else ""
    return bool(dot) and inside[:1] in (".", "-", "_") and inside.endswith(f".{suffix}")


def rotated_copies(path: str) -> list[os.DirEntry[str]]:
    """Returns the entries beside `path` that may be rotated copies. Raises OSError."""
    name = Path(path).name
    return [
        entry
        for entry in _siblings(path)
        if is_rotated_name(entry.name, name) and Path(entry.name).suffix not in COMPRESSED_SUFFIXES
    ]


def entries_with_inode(path: str, inode: int) -> list[os.DirEntry[str]]:
    """Returns the entries at or beside `path` with that inode. Raises OSError."""
    return [entry for entry in _siblings(path) if entry.inode() == inode]


def _siblings(path: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(Path(path).parent) as entries:
        for _, entry in zip(range(MAX_NAMES), entries, strict=False):
            yield entry
