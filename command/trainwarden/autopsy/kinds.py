"""Counts the lines of one kind over all logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from trainwarden.autopsy.model import Line, Tally


@dataclass(frozen=True, slots=True)
class Kind:
    """The lines of one kind in all logs."""

    name: str
    count: int
    first: Line
    last: Line
    files: tuple[str, ...]


def merge(tallies: Iterable[Tally]) -> Kind | None:
    """Returns the lines of all `tallies` as one kind; None if there are none."""
    found = [tally for tally in tallies if tally.count]
    if not found:
        return None
    names = sorted({tally.kind for tally in found})
    # One event has a line of several kinds: the statement that raises, and the exception.
    counts: Counter[str] = Counter()
    for tally in found:
        counts[tally.first.file] = max(counts[tally.first.file], tally.count)
    dated = [tally for tally in found if tally.first.at is not None] or found
    first = min(dated, key=lambda one: (one.first.at or 0.0, one.first.order)).first
    last = max(dated, key=lambda one: (one.last.at or 0.0, one.last.order)).last
    files = tuple(dict.fromkeys(tally.first.file for tally in found))
    return Kind(" or ".join(names), counts.total(), first, last, files)
