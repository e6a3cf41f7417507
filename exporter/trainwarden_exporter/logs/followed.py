"""One file of a log: how far it is read, and what comes next in it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from trainwarden_exporter.logs.blocks import Block, parse_block
from trainwarden_exporter.logs.files import first_data, open_file, read_head
from trainwarden_exporter.logs.state import MOST_PRINTED, Bookmark, Print

BLOCK = 256 << 10
"""Bytes that are read at once: little enough to stay in the processor's cache."""

_LINE_FEED = 10
_LINE_ENDS = (b"", b"\n", b"\r", b"\0")


def needed(limit: int) -> int:
    """Bytes that are read into at once, of a file with lines of at most `limit` bytes."""
    return MOST_PRINTED + max(BLOCK, 2 * limit) + 1


class RewrittenError(Exception):
    """What was read of the file is not in it any more: it was truncated, or is another one."""


class GoneError(Exception):
    """The file lies no longer where it was seen last."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What comes next in a file."""

    block: Block
    bookmark: Bookmark
    """Where the file is read to when this has been dealt with."""
    counts: bool
    """Whether its lines count, or were there already when the log was first followed."""
    fresh: bool
    """Whether its lines were written while the file was followed."""


@dataclass(frozen=True, slots=True)
class Held:
    """Why a new file is not read yet: it may be a copy that rotation made of another one."""

    original: Bookmark
    since: float
    """By the clock of the follower."""


class Followed:
    """A file that is followed. Its methods raise OSError where it cannot be read."""

    def __init__(self, bookmark: Bookmark, *, fresh_from: int = 0) -> None:
        self.bookmark = bookmark
        self.fresh_from = fresh_from
        """Lines that begin before were there already when this program began to follow it."""
        self.listed = True
        """Whether it is still found where the log's files should lie."""
        self.copy = False
        """Whether it is read for what stands in no other file any more."""
        self.caught_up = 0.0
        """When it was last read to its end, by the clock of the follower."""
        self.judged: tuple[int, int] | None = None
        """Its `state` when it was judged whether it is a copy, before anything was read of it."""
        self.held: Held | None = None
        self.status: os.stat_result | None = None
        """As seen last."""
        self.grown = 0.0
        """When it was last seen to change, by the clock of the follower."""
        self._descriptor: int | None = None
        self._checked: os.stat_result | None = None
        self._read: tuple[int, int] | None = None

    @property
    def opened(self) -> bool:
        return self._descriptor is not None

    @property
    def deleted(self) -> bool:
        """Whether it has no name any more."""
        return self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0

    @property
    def state(self) -> tuple[int, int] | None:
        """What differs whenever it was written to."""
        return None if self.status is None else (self.status.st_size, self.status.st_mtime_ns)

    @property
    def size(self) -> int:
        """In bytes, as far as is known."""
        return 0 if self.status is None else self.status.st_size

    @property
    def modified(self) -> float:
        """When it was last written to, as far as is known (unix seconds)."""
        return float("inf") if self.status is None else self.status.st_mtime

    def open(self) -> int:
        """Its descriptor. Raises GoneError where it is not at its path any more."""
        if self._descriptor is None:
            self._descriptor = open_file(self.bookmark.path, self.bookmark.key)
            if self._descriptor is None:
                raise GoneError
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def notice(self, status: os.stat_result, clock: float) -> None:
        """It is as `status` says, at `clock`."""
        before, self.status = self.state, status
        if before != self.state:
            self.grown = clock

    @property
    def unread(self) -> bool:
        """Whether there may be something to read."""
        return self.held is None and self._read != self.state

    def read_up(self, clock: float) -> None:
        """There is nothing more to read until it changes."""
        self._read, self.caught_up = self.state, clock

    def look_back(self, size: int, most: int) -> None:
        """Begin `most` bytes before `size`, at whole lines.

        Lines that begin before `size` count not, or counted already.
        """
        start = max(0, size - most)
        before = os.pread(self.open(), 1, start - 1) if start else b""
        head = read_head(self.open())[:start]
        self.bookmark = replace(
            self.bookmark,
            offset=start,
            skipping=before not in _LINE_ENDS,
            counts_from=max(size, self.bookmark.counts_from),
            head=Print.of(head),
            tail=Print(),
        )

    def next(self, buffer: bytearray, limit: int, *, finish: bool = False) -> Piece | None:
        """What comes next in whole lines of at most `limit` bytes; None while there is nothing.

        It may stand in `buffer`, of at least `needed(limit)` bytes. With `finish`, what stands
        behind the last line end is a line too. Raises RewrittenError.
        """
        if self._checked is not self.status:
            self._check()
            self._checked = self.status
        mark = self.bookmark
        begin, start = mark.offset - mark.tail.size, mark.tail.size
        want = start + max(BLOCK, 2 * limit)
        with memoryview(buffer) as view:
            stop = os.preadv(self.open(), [view[:want]], begin)
        if stop < start or not mark.tail.fits(buffer):
            raise RewrittenError
        if stop == start:
            return None
        if buffer[start] == 0:
            data_at = first_data(self.open(), mark.offset)
            if data_at is None:
                return None
            if data_at > mark.offset:
                return self._after_hole(data_at)
        edge = min((one for one in self._edges if one > mark.offset), default=begin - 1) - begin
        last = stop < want
        end = stop + 1 if finish and last else stop
        buffer[stop] = _LINE_FEED
        block = parse_block(
            buffer, start, end, last=last, limit=limit, skipping=mark.skipping, edge=edge
        )
        if block.used == 0:
            return None
        used = min(block.used, stop - start)
        return Piece(
            block,
            self._after(buffer, start + used, begin, skipping=block.skipping),
            counts=mark.offset >= mark.counts_from,
            fresh=mark.offset >= max(self._edges),
        )

    def _check(self) -> None:
        """Raises RewrittenError where it does not begin with what was read of it."""
        size = os.fstat(self.open()).st_size
        mark = self.bookmark
        if size < mark.offset or not mark.head.fits(read_head(self.open())):
            raise RewrittenError

    @property
    def _edges(self) -> tuple[int, int]:
        return self.bookmark.counts_from, self.fresh_from

    def _after(self, read: bytearray, end: int, begin: int, *, skipping: bool) -> Bookmark:
        """The bookmark once `read[:end]` is dealt with, which stands at `begin`."""
        return replace(
            self.bookmark,
            offset=begin + end,
            skipping=skipping,
            modified=0 if self.status is None else self.status.st_mtime_ns,
            head=Print.of(read[: min(end, MOST_PRINTED)]) if begin == 0 else self.bookmark.head,
            tail=Print.of(read[max(0, end - MOST_PRINTED) : end]),
        )

    def _after_hole(self, data_at: int) -> Piece:
        head = self.bookmark.head
        mark = replace(
            self.bookmark,
            offset=data_at,
            skipping=False,
            head=head if head.size else Print.of(read_head(self.open())),
            tail=Print(),
        )
        nothing = Block(b"", 0, 0, 0, skipping=False, cut=0)
        return Piece(nothing, mark, counts=True, fresh=True)
