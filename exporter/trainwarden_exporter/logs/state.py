"""State that survives a restart of the exporter, so that each line counts exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

FINGERPRINT_BYTES = 256
"""Number of bytes in a fingerprint."""


class FileKey(NamedTuple):
    """Identity of a file, independent of its name."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Size and hash of the first or last bytes of a file."""

    size: int = 0
    digest: str = ""

    @classmethod
    def of(cls, content: bytes) -> Fingerprint:
        if not content.strip(b"\0"):
            return cls()  # NULs identify no file
        return cls(len(content), blake2b(content, digest_size=8).hexdigest())

    def matches(self, content: bytes) -> bool:
        """Whether `content` begins with the bytes of the fingerprint."""
        return len(content) >= self.size and Fingerprint.of(content[: self.size]) == self


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Read position in a file.

    The inode may have been reused and the content replaced since: `head` and `tail` show that.
    """

    key: FileKey
    path: str
    """Last known path."""
    origin: str
    """First known path. All that a log writes to this path is one stream, also when the file is
    replaced."""
    place: str
    """The template that matched it."""
    offset: int = 0
    """Start of the first unread line."""
    skipping: bool = False
    """Whether `offset` lies within a line whose rest is skipped."""
    counts_from: int = 0
    """Lines that begin before this offset existed when the log was first followed."""
    modified: int = 0
    """Last write at the time of reading (Unix nanoseconds)."""
    head: Fingerprint = Fingerprint()
    """The first bytes before `offset`."""
    tail: Fingerprint = Fingerprint()
    """The last bytes before `offset`."""

    @property
    def identifies_file(self) -> bool:
        """Whether any content was read that identifies the file."""
        return self.offset > 0 and self.head.size + self.tail.size > 0


DeduplicationCounts = Mapping[str, tuple[int, Mapping[str, int]]]
"""By line: how often it was counted for this log, and its occurrences by location."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of matching lines."""

    matches: Mapping[str, int] = field(default_factory=dict)
    """By pattern."""
    last_matches: Mapping[str, float] = field(default_factory=dict)
    """By pattern (Unix seconds)."""
    troubles: int = 0
    """Number of error lines."""
    streaks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By origin of the file, then by pattern."""
    copies: DeduplicationCounts = field(default_factory=dict)
    finite_until: Mapping[str, int] = field(default_factory=dict)
    """By name of a value, the last step with a finite one, while the last one is not."""
    finite_at: Mapping[str, float] = field(default_factory=dict)
    """The same by time (Unix seconds); 0 where no time is known."""


@dataclass(frozen=True, slots=True)
class LogState:
    """Read positions of a log, and the counts up to them."""

    bookmarks: tuple[Bookmark, ...] = ()
    left: tuple[Bookmark, ...] = ()
    """Read positions of files that are gone and may come back."""
    counts: Counts = Counts()
    read_bytes: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    last_write: float = 0.0
    """Last known write (Unix seconds); 0 for none."""
    listed: float = 0.0
    """Last listing of its files (Unix seconds); 0 for a log that was never followed."""
