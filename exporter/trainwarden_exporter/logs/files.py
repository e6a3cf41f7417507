"""Opens and reads what may be a log, or anything else that lies where a log should."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from trainwarden_exporter.logs.state import MOST_PRINTED, Bookmark, Key

COMPRESSED = frozenset({".gz", ".xz", ".zst", ".bz2", ".lz4", ".zip"})
"""What rotation makes of a log that was read before."""

MOST_NAMES = 10_000
"""Names in a folder among which a file is looked for."""


def key_of(status: os.stat_result) -> Key:
    return Key(status.st_dev, status.st_ino)


def read_status(path: str) -> os.stat_result | None:
    """The status of the regular file at `path`; None for anything else, or nothing.

    Raises OSError where that cannot be seen.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - once a second for each of many
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def open_file(path: str, key: Key | None = None) -> int | None:
    """A descriptor of the regular file at `path`; None where there is none, or not that of `key`.

    Nothing else than a regular file is ever opened: to open a pipe can block, to open a device can
    do what it is there for. Raises OSError where the file may not be read.
    """
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or key not in (None, key_of(status)):
            return None
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{handle}", flags)
    finally:
        os.close(handle)


def first_data(descriptor: int, offset: int) -> int | None:
    """Where, from `offset` on, the file holds anything; None where there is only a hole.

    So a hole, which a writer leaves that goes on where it was in a file truncated meanwhile, is not
    read through.
    """
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError:
        return None


def read_head(descriptor: int) -> bytes:
    """The bytes of which the first fingerprint is taken."""
    return os.pread(descriptor, MOST_PRINTED, 0)


def is_read_up_to(descriptor: int, bookmark: Bookmark) -> bool:
    """Whether the file begins with what was read of that of `bookmark`, by its fingerprints."""
    tail = os.pread(descriptor, bookmark.tail.size, bookmark.offset - bookmark.tail.size)
    size = os.fstat(descriptor).st_size
    return (
        size >= bookmark.offset
        and bookmark.head.fits(read_head(descriptor))
        and bookmark.tail.fits(tail)
    )


def is_named_after(name: str, original: str) -> bool:
    """Whether `name` is one that rotation gives to a copy of `original`.

    `trainer.log.1`, `trainer.log-20261121`, and before the suffix `trainer-20261121.log`.
    """
    stem, dot, suffix = original.rpartition(".")
    if name.startswith(original):
        return name[len(original) : len(original) + 1] in (".", "-", "_")
    inside = name.removeprefix(stem) if stem and name.startswith(stem) else ""
    return bool(dot) and inside[:1] in (".", "-", "_") and inside.endswith(f".{suffix}")


def named_after(path: str) -> list[os.DirEntry[str]]:
    """What lies beside `path` and may be a copy of it. Raises OSError."""
    name = Path(path).name
    return [
        entry
        for entry in _beside(path)
        if is_named_after(entry.name, name) and Path(entry.name).suffix not in COMPRESSED
    ]


def with_inode(path: str, inode: int) -> list[os.DirEntry[str]]:
    """What lies beside `path`, or there, and has that inode. Raises OSError."""
    return [entry for entry in _beside(path) if entry.inode() == inode]


def _beside(path: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(Path(path).parent) as entries:
        for _, entry in zip(range(MOST_NAMES), entries, strict=False):
            yield entry
