"""Events that the log follower passes to its sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LineEvent:
    """A line that matched a pattern of its log.

    Lines of one file come in order. A line that is a copy of one in another file of the same
    `deduplication_group` is passed once.
    """

    run: str
    log: str
    role: str
    """Role of the log; empty if unknown."""
    pattern: str
    groups: Mapping[str, str]
    """Matches of the named groups of the pattern; without groups that took no part."""
    timestamp: float
    """Time of the line if plausible, else the time of reading (Unix seconds); of a line that is
    not fresh, at most the last write to its file."""
    fresh: bool = True
    """False for a line that existed before its file was followed: it shows a state, not a
    current event."""
    is_bound: bool = False
    """Whether its time is only the latest possible one, because it has none of its own."""
    missed: bool = False
    """Whether it was written since the last exporter read the log, and before this one did: such a
    line is not fresh, but nobody has read it before."""


Sink = Callable[[LineEvent], None]
"""Receives events in the thread that reads the log; must be fast and thread-safe."""
