"""Finds rotated files: where a file was moved, and which file is a copy of it.

Rotation by copytruncate copies a log and then truncates it. Content that was not read by then is
only in the copy; all other content is in both and must not count twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainwarden_exporter.logs.file_access import (
    entries_with_inode,
    file_key,
    is_rotated_name,
    matches_bookmark,
    open_file,
    read_head,
    rotated_copies,
)
from trainwarden_exporter.logs.state import Bookmark, FileKey
from trainwarden_exporter.logs.tailed_file import GoneError, SuspendedFile, TailedFile

MAX_SUSPENDED_SECONDS = 60.0
"""Maximum time for which a possible copy is not read."""
SETTLED_SECONDS = 10.0
"""Seconds without a change after which a copy is complete."""
SMALL_FILE_SECONDS = 5.0
"""Time for which a file that is too small to identify is not read."""

MIN_IDENTIFYING_BYTES = 4096
"""Number of equal first bytes that identify a log."""

MAX_COPIES = 20
"""Maximum number of files searched for a copy, the last written ones."""


def find_rotated_copy(
    lost: Bookmark, followed: Mapping[FileKey, TailedFile], left: Mapping[FileKey, Bookmark]
) -> TailedFile | None:
    """Returns the copy with the content of `lost`, open and at its read position; None without one.

    Ignores files, `followed` or `left`, that were read themselves and still have that content.
    """
    for path, key in _copies(lost) if lost.identifies_file else ():
        file = followed.get(key)
        known = left.get(key) if file is None or file.suspended is not None else file.bookmark
        if file is None:
            file = TailedFile(replace(lost, key=key, path=path))
            file.is_listed = False
        with suppress(OSError, GoneError):
            content = file.open()
            read = known is not None and known.identifies_file and matches_bookmark(content, known)
            if not read and matches_bookmark(content, lost):
                file.bookmark, file.suspended, file.is_copy = (
                    replace(lost, key=key, path=path),
                    None,
                    True,
                )
                return file
        if key not in followed:
            file.close()
    return None


def find_renamed(lost: Bookmark) -> str | None:
    """Returns the path in the same folder to which the file of `lost` was renamed, or None."""
    original = Path(lost.path).name
    with suppress(OSError):
        for entry in entries_with_inode(lost.path, lost.key.inode):
            named = entry.name == original or is_rotated_name(entry.name, original)
            if file_key(entry.stat()) == lost.key and (named or _is_same_file(entry.path, lost)):
                return entry.path
    return None


def find_same_content(path: str, key: FileKey, bookmarks: Iterable[Bookmark]) -> Bookmark | None:
    """Returns the bookmark, of files that are gone, whose content the file at `path` begins with.

    This recognises a file that was replaced by a longer version of itself, as when logs are copied
    from elsewhere, and a file whose disk has another number since the last boot. A short common
    beginning proves nothing: a run that fails at once logs the same each time. Raises OSError if
    the file is unreadable.
    """
    candidates = [
        bookmark
        for bookmark in bookmarks
        if bookmark.path == path
        and bookmark.identifies_file
        and (bookmark.offset >= MIN_IDENTIFYING_BYTES or bookmark.key.inode == key.inode)
    ]
    if not candidates:
        return None
    descriptor = open_file(path, key)
    if descriptor is None:
        return None
    try:
        fitting = [bookmark for bookmark in candidates if matches_bookmark(descriptor, bookmark)]
    finally:
        os.close(descriptor)
    return max(fitting, key=lambda bookmark: bookmark.offset, default=None)


def suspend_if_copy(
    path: str, followed: Iterable[TailedFile], clock: float
) -> SuspendedFile | None:
    """Returns why the new file at `path` must not be read yet, or None."""
    folder, _, name = path.rpartition("/")
    for file in followed:
        bookmark = file.bookmark
        if (
            file.is_listed and file.suspended is None and bookmark.identifies_file
        ):  # not the file itself
            beside, _, original = bookmark.path.rpartition("/")
            if beside == folder and is_rotated_name(name, original):
                return SuspendedFile(bookmark, clock)
    return None


def release_if_resolved(file: TailedFile, suspended: SuspendedFile, clock: float) -> None:
    """Releases `file` once it is known whether it is a copy. Raises OSError, GoneError."""
    descriptor, age = file.open(), clock - suspended.since
    content, head = read_head(descriptor), suspended.original.head
    if len(content) < head.size:
        if age >= SMALL_FILE_SECONDS:
            file.suspended = None
    elif not head.matches(content):
        file.suspended = None
    elif age >= MAX_SUSPENDED_SECONDS or clock - file.grown_at >= SETTLED_SECONDS:
        if matches_bookmark(descriptor, suspended.original):
            file.rewind(os.fstat(descriptor).st_size, 0)
        file.suspended = None


def _is_same_file(path: str, bookmark: Bookmark) -> bool:
    """Whether the file at `path` is that of `bookmark`, not another file with its inode."""
    descriptor = open_file(path, bookmark.key) if bookmark.identifies_file else None
    if descriptor is None:
        return False
    try:
        return matches_bookmark(descriptor, bookmark)
    finally:
        os.close(descriptor)


def _copies(lost: Bookmark) -> Iterator[tuple[str, FileKey]]:
    found: list[tuple[float, str, FileKey]] = []
    with suppress(OSError):
        for entry in rotated_copies(lost.origin):
            with suppress(OSError):
                status = entry.stat()
                # An older one was there before; and this one cannot be older than its original.
                younger = status.st_mtime_ns >= lost.modified
                if file_key(status) != lost.key and entry.is_file() and younger:
                    found.append((status.st_mtime, entry.path, file_key(status)))
    found.sort(reverse=True)
    yield from ((path, key) for _, path, key in found[:MAX_COPIES])
