"""What must outlive the exporter so that no line counts twice, and none is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

MOST_PRINTED = 256
"""Bytes of which a fingerprint is taken."""


class Key(NamedTuple):
    """Which file it is, whatever it is called."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Print:
    """The fingerprint of a few bytes."""

    size: int = 0
    digest: str = ""

    @classmethod
    def of(cls, content: bytes | bytearray) -> Print:
        if not content.strip(b"\0"):
            return cls()  # many files begin with nothing
        return cls(len(content), blake2b(content, digest_size=8).hexdigest())

    def fits(self, content: bytes | bytearray) -> bool:
        """Whether `content` begins with what it was taken of."""
        return len(content) >= self.size and Print.of(content[: self.size]) == self


@dataclass(frozen=True, slots=True)
class Bookmark:
    """How far a file was read.

    An inode may be that of another file by now, and a file may have been written anew: `head` and
    `tail` tell.
    """

    key: Key
    path: str
    """Where it was seen last."""
    origin: str
    """Where it was seen first: what a log writes to this path is one stream, however often the file
    is another one."""
    place: str
    """The template by which it was found."""
    offset: int = 0
    """Where the first line begins that was not read."""
    skipping: bool = False
    """Whether `offset` lies within a line of which the rest is passed over."""
    counts_from: int = 0
    """Lines that begin before were there already when the log was first followed."""
    modified: int = 0
    """When it was last written to, as far as it was read (unix nanoseconds)."""
    head: Print = Print()
    """The first bytes, of those before `offset`."""
    tail: Print = Print()
    """The last bytes before `offset`."""

    @property
    def proves(self) -> bool:
        """Whether anything was read by which the file can be told from others."""
        return self.offset > 0 and self.head.size + self.tail.size > 0


CopyCounts = Mapping[str, tuple[int, Mapping[str, int]]]
"""By line: how often it was counted for this log, and how often it stood in each of its places."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What the lines of a log came to."""

    matches: Mapping[str, int] = field(default_factory=dict)
    """By pattern."""
    last_matches: Mapping[str, float] = field(default_factory=dict)
    """By pattern, unix seconds."""
    troubles: int = 0
    """Lines that are signs of trouble."""
    streaks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By the origin of the file, and pattern."""
    copies: CopyCounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogState:
    """One log: where its files were read to, and what was counted up to there."""

    bookmarks: tuple[Bookmark, ...] = ()
    left: tuple[Bookmark, ...] = ()
    """Of files that were let go of: they may come back."""
    counts: Counts = Counts()
    read_bytes: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    last_write: float = 0.0
    """Unix seconds; 0 while nothing is known to have been written."""
    listed: float = 0.0
    """When its files were last looked for (unix seconds); 0 for a log not followed yet."""
