"""Reads one file of a log from its read position."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from trainwarden_exporter.logs.file_access import next_data_offset, open_file, read_head
from trainwarden_exporter.logs.line_blocks import LineBlock, parse_block
from trainwarden_exporter.logs.line_parser import strip_ansi
from trainwarden_exporter.logs.state import FINGERPRINT_BYTES, Bookmark, Fingerprint

BLOCK_BYTES = 64 << 10
"""Number of bytes read at once."""

MIN_BAR_BYTES = 8
"""Number of bytes of the shortest state of a progress bar."""

_LINE_ENDS = (b"", b"\n", b"\r", b"\0")


class RewrittenError(Exception):
    """The file no longer has the content that was read: it was truncated or replaced."""


class GoneError(Exception):
    """The file is no longer at its last known path."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next lines of a file."""

    block: LineBlock
    bookmark: Bookmark
    """The read position after these lines."""
    counts: bool
    """Whether its lines count. Lines from before the log was first followed do not."""
    fresh: bool
    """Whether its lines were written while the file was followed."""
    written: float = 0.0
    """Last write to the file at the time of reading (Unix seconds)."""

    @property
    def missed(self) -> bool:
        """Whether its lines were written after the last exporter, and before this one."""
        return self.counts and not self.fresh


@dataclass(frozen=True, slots=True)
class SuspendedFile:
    """A new file that is not read yet because it may be a rotated copy of `original`."""

    original: Bookmark
    since: float
    """By the follower's clock."""


class TailedFile:
    """A followed file. Its methods raise OSError if it is unreadable."""

    def __init__(self, bookmark: Bookmark) -> None:
        self.bookmark = bookmark
        self.fresh_from = 0
        """Lines that begin before this offset existed when the exporter opened the file first, and
        a run that was announced just before has not written them."""
        self.is_listed = True
        """Whether a template of the log still matches it."""
        self.is_copy = False
        """Whether it is a rotated copy that is read for its unread rest."""
        self.caught_up_at = 0.0
        """Time of the last read to its end, by the follower's clock."""
        self.checked_state: tuple[int, int] | None = None
        """Its `state` at the last check whether it is a copy."""
        self.suspended: SuspendedFile | None = None
        self.status: os.stat_result | None = None
        """Last known status."""
        self.grown_at = 0.0
        """Time of the last observed change, by the follower's clock."""
        self._descriptor: int | None = None
        self._checked: os.stat_result | None = None
        self._read: tuple[int, int] | None = None

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    @property
    def is_deleted(self) -> bool:
        """Whether it has no name left."""
        return self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0

    @property
    def state(self) -> tuple[int, int] | None:
        """Returns size and modification time, which change with each write."""
        return None if self.status is None else (self.status.st_size, self.status.st_mtime_ns)

    @property
    def size(self) -> int:
        """Returns the last known size in bytes."""
        return 0 if self.status is None else self.status.st_size

    @property
    def modified(self) -> float:
        """Returns the last known write (Unix seconds); infinity if unknown."""
        return float("inf") if self.status is None else self.status.st_mtime

    def open(self) -> int:
        """Returns its descriptor. Raises GoneError if it is no longer at its path."""
        if self._descriptor is None:
            self._descriptor = open_file(self.bookmark.path, self.bookmark.key)
            if self._descriptor is None:
                raise GoneError
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def update_status(self, status: os.stat_result, clock: float) -> None:
        """Records its status at `clock`."""
        before, self.status = self.state, status
        if before != self.state:
            self.grown_at = clock

    @property
    def has_unread(self) -> bool:
        return self.suspended is None and self._read != self.state

    def mark_caught_up(self, clock: float) -> None:
        """Records that it is read to its end."""
        self._read, self.caught_up_at = self.state, clock

    def rewind(self, size: int, most: int) -> None:
        """Moves the read position to the first whole line within `most` bytes before `size`.

        Lines that begin before `size` do not count.
        """
        start = max(0, size - most)
        before = os.pread(self.open(), 1, start - 1) if start else b""
        head = read_head(self.open())[:start]
        self.bookmark = replace(
            self.bookmark,
            offset=start,
            skipping=before not in _LINE_ENDS,
            counts_from=max(size, self.bookmark.counts_from),
            head=Fingerprint.of(head),
            tail=Fingerprint(),
        )

    def next_chunk(self, limit: int, *, finish: bool = False) -> Chunk | None:
        """Returns the next whole lines of at most `limit` bytes; None if there are none.

        With `finish`, the text after the last line end is a line too. Raises RewrittenError.
        """
        if self._checked is not self.status:
            self._check_unchanged()
            self._checked = self.status
        bookmark = self.bookmark
        begin, start = bookmark.offset - bookmark.tail.size, bookmark.tail.size
        wanted_bytes = start + max(BLOCK_BYTES, 2 * limit)
        written = os.fstat(self.open()).st_mtime
        data = os.pread(self.open(), wanted_bytes, begin)
        if not bookmark.tail.matches(data):
            raise RewrittenError
        if len(data) == start:
            return None
        if data[start] == 0:
            data_at = next_data_offset(self.open(), bookmark.offset)
            if data_at is None:
                return None
            if data_at > bookmark.offset:
                return self._after_hole(data_at)
        edge = (
            min((one for one in self._boundaries if one > bookmark.offset), default=begin - 1)
            - begin
        )
        last = len(data) < wanted_bytes
        text = data + b"\n" if finish and last else data
        block = parse_block(
            text, start, len(text), last=last, limit=limit, skipping=bookmark.skipping, edge=edge
        )
        if block.used_bytes == 0:
            return None
        used_bytes = min(block.used_bytes, len(data) - start)
        return Chunk(
            block,
            self._bookmark_after(data, start + used_bytes, begin, skipping=block.skipping),
            counts=bookmark.offset >= bookmark.counts_from,
            fresh=bookmark.offset >= max(self._boundaries),
            written=written,
        )

    def open_bar(self, limit: int) -> Chunk | None:
        """Returns the text after the last line end, if a carriage return ended that line.

        This is the current state of a progress bar: its line ends only at the next draw, which is
        a step later. The text is not consumed. None without such text.
        """
        offset = self.bookmark.offset
        written = os.fstat(self.open()).st_mtime
        text = os.pread(self.open(), limit + 1, offset - 1) if offset else b""
        if (
            self.bookmark.skipping
            or len(text) < MIN_BAR_BYTES
            or not text.startswith(b"\r")
            or b"\0" in text
        ):
            return None
        line = strip_ansi(text[1:]) + b"\n"
        block = LineBlock(line, 0, len(line), 0, skipping=False, truncated_lines=0)
        counts, fresh = (
            offset >= begin for begin in (self.bookmark.counts_from, max(self._boundaries))
        )
        return Chunk(block, self.bookmark, counts=counts, fresh=fresh, written=written)

    def _check_unchanged(self) -> None:
        """Raises RewrittenError if the file does not begin with the content that was read."""
        size = os.fstat(self.open()).st_size
        bookmark = self.bookmark
        if size < bookmark.offset or not bookmark.head.matches(read_head(self.open())):
            raise RewrittenError

    @property
    def _boundaries(self) -> tuple[int, int]:
        return self.bookmark.counts_from, self.fresh_from

    def _bookmark_after(self, read: bytes, end: int, begin: int, *, skipping: bool) -> Bookmark:
        """Returns the read position after `read[:end]`, which is at offset `begin`."""
        return replace(
            self.bookmark,
            offset=begin + end,
            skipping=skipping,
            modified=0 if self.status is None else self.status.st_mtime_ns,
            head=Fingerprint.of(read[: min(end, FINGERPRINT_BYTES)])
            if begin == 0
            else self.bookmark.head,
            tail=Fingerprint.of(read[max(0, end - FINGERPRINT_BYTES) : end]),
        )

    def _after_hole(self, data_at: int) -> Chunk:
        head = self.bookmark.head
        bookmark = replace(
            self.bookmark,
            offset=data_at,
            skipping=False,
            head=head if head.size else Fingerprint.of(read_head(self.open())),
            tail=Fingerprint(),
        )
        empty = LineBlock(b"", 0, 0, 0, skipping=False, truncated_lines=0)
        return Chunk(empty, bookmark, counts=True, fresh=True)
