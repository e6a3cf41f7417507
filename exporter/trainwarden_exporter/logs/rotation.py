"""Tells what rotation made of a file: where it went, and which other file is a copy of it.

A log may be rotated by copying it and then cutting it to nothing. What was not read of it by then
stands in the copy alone; all else stands in both, and must not count twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainwarden_exporter.logs.files import (
    is_named_after,
    is_read_up_to,
    key_of,
    named_after,
    open_file,
    read_head,
    with_inode,
)
from trainwarden_exporter.logs.followed import Followed, GoneError, Held
from trainwarden_exporter.logs.state import Bookmark, Key

HELD = 60.0
"""Seconds for which a file that may be a copy is not read, at most."""
SETTLED = 10.0
"""Seconds without a change after which a copy is complete."""
SMALL = 5.0
"""Seconds for which a file that is too small to tell is not read."""

ENOUGH = 4096
"""Bytes that do not begin two logs by chance."""

MOST_COPIES = 20
"""Files among which the copy of another one is looked for, those written to last."""


def find_heir(
    lost: Bookmark, followed: Mapping[Key, Followed], left: Mapping[Key, Bookmark]
) -> Followed | None:
    """The file in which that stands which `lost` was the bookmark of; open, and to be read on.

    None that was read for itself, be it `followed` or `left` by now, and still says what was read.
    """
    for path, key in _copies(lost) if lost.proves else ():
        one = followed.get(key)
        known = left.get(key) if one is None or one.held is not None else one.bookmark
        if one is None:
            one = Followed(replace(lost, key=key, path=path))
            one.listed = False
        with suppress(OSError, GoneError):
            content = one.open()
            read = known is not None and known.proves and is_read_up_to(content, known)
            if not read and is_read_up_to(content, lost):
                one.bookmark, one.held, one.copy = replace(lost, key=key, path=path), None, True
                return one
        if key not in followed:
            one.close()
    return None


def find_moved(lost: Bookmark) -> str | None:
    """The path, in the same folder, to which the file of `lost` was renamed; None for none."""
    original = Path(lost.path).name
    with suppress(OSError):
        for entry in with_inode(lost.path, lost.key.inode):
            named = entry.name == original or is_named_after(entry.name, original)
            if key_of(entry.stat()) == lost.key and (named or _is_still(entry.path, lost)):
                return entry.path
    return None


def find_same(path: str, key: Key, marks: Iterable[Bookmark]) -> Bookmark | None:
    """That of `marks`, of files that are gone, whose content the file at `path` begins with.

    So a file is told that was replaced by another one which says the same and more, as when logs
    are fetched from elsewhere; or whose disk has another number since the machine booted. A little
    that is the same proves nothing: a run that fails at once says the same each time. Raises
    OSError where the file cannot be read.
    """
    candidates = [
        mark
        for mark in marks
        if mark.path == path
        and mark.proves
        and (mark.offset >= ENOUGH or mark.key.inode == key.inode)
    ]
    if not candidates:
        return None
    descriptor = open_file(path, key)
    if descriptor is None:
        return None
    try:
        fitting = [mark for mark in candidates if is_read_up_to(descriptor, mark)]
    finally:
        os.close(descriptor)
    return max(fitting, key=lambda mark: mark.offset, default=None)


def why_held(path: str, followed: Iterable[Followed], clock: float) -> Held | None:
    """Why the new file at `path` is not to be read yet; None where it is."""
    folder, _, name = path.rpartition("/")
    for one in followed:
        mark = one.bookmark
        if one.listed and one.held is None and mark.proves:  # so it is not the file itself
            beside, _, original = mark.path.rpartition("/")
            if beside == folder and is_named_after(name, original):
                return Held(mark, clock)
    return None


def judge(one: Followed, held: Held, clock: float) -> None:
    """Release `one` where it is sure what it is. Raises OSError, GoneError."""
    descriptor, age = one.open(), clock - held.since
    content, head = read_head(descriptor), held.original.head
    if len(content) < head.size:
        if age >= SMALL:
            one.held = None
    elif not head.fits(content):
        one.held = None
    elif age >= HELD or clock - one.grown >= SETTLED:
        if is_read_up_to(descriptor, held.original):
            one.look_back(os.fstat(descriptor).st_size, 0)
        one.held = None


def _is_still(path: str, mark: Bookmark) -> bool:
    """Whether the file at `path` is that of `mark`, and not another one of its inode."""
    descriptor = open_file(path, mark.key) if mark.proves else None
    if descriptor is None:
        return False
    try:
        return is_read_up_to(descriptor, mark)
    finally:
        os.close(descriptor)


def _copies(lost: Bookmark) -> Iterator[tuple[str, Key]]:
    found: list[tuple[float, str, Key]] = []
    with suppress(OSError):
        for entry in named_after(lost.origin):
            with suppress(OSError):
                status = entry.stat()
                # An older one was there before; and this one cannot be older than its original.
                younger = status.st_mtime_ns >= lost.modified
                if key_of(status) != lost.key and entry.is_file() and younger:
                    found.append((status.st_mtime, entry.path, key_of(status)))
    found.sort(reverse=True)
    yield from ((path, key) for _, path, key in found[:MOST_COPIES])
