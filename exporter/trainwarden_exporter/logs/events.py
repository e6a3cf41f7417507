"""What the log follower hands on about a line, to whoever can make more of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LineEvent:
    """A line that one of its log's patterns matched.

    Lines of one file come in their order. A line that is a copy of one in another file of the same
    `copies` word is told once.
    """

    run: str
    log: str
    role: str
    """Of the log: which part of the run writes it; empty where that is not known."""
    pattern: str
    groups: Mapping[str, str]
    """What the named groups of the pattern matched; a group that took no part is absent."""
    timestamp: float
    """When the line was read, or its own time where it tells one that is plausible (unix
    seconds)."""
    fresh: bool = True
    """False for a line that was there before its file was followed: it tells how things stand, not
    that something happened just now."""


Sink = Callable[[LineEvent], None]
"""Takes events in the thread that reads the log: it must be quick, and safe among threads."""
