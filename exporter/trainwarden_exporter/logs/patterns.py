"""Finds the lines in a piece of a log that tell something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from trainwarden_exporter.layouts.base import LinePattern
from trainwarden_exporter.logs.lines import number_at, parse_number
from trainwarden_exporter.logs.regexes import RegexSet, group_names

OF_PROGRESS = frozenset({"step", "total", "seconds", "trainer_version", "rollout_version"})
"""Groups whose numbers are no gauges: those of the run's progress, which has its own."""


@dataclass(frozen=True, slots=True)
class Match:
    """A pattern, and what its named groups matched."""

    pattern: LinePattern
    groups: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TellingLine:
    """A line, without its end and without colours, and all the patterns that match in it."""

    text: bytes
    matches: tuple[Match, ...]


class Patterns:
    """All that is looked for in the lines of a log. Raises ValueError where it is too much."""

    def __init__(self, patterns: tuple[LinePattern, ...]) -> None:
        self._patterns = patterns
        self._regexes = RegexSet([pattern.regex for pattern in patterns]) if patterns else None
        self._captures = tuple(bool(group_names(pattern.regex)) for pattern in patterns)

    def search(self, text: bytes | bytearray, start: int, end: int) -> Iterator[TellingLine]:
        """The telling lines in `text[start:end]`, which is whole lines, in order."""
        regexes = self._regexes
        if regexes is None:
            return
        while start < end and (place := regexes.find(text, start, end)) is not None:
            begin = text.rfind(b"\n", start, place) + 1 or start
            stop = text.find(b"\n", place, end)
            stop = end if stop < 0 else stop
            line = bytes(text[begin:stop])
            yield TellingLine(line, tuple(self._matches(regexes, line)))
            start = stop + 1

    def _matches(self, regexes: RegexSet, line: bytes) -> Iterator[Match]:
        for index in regexes.matching(line):
            captures = self._captures[index]
            yield Match(self._patterns[index], regexes.groups(index, line) if captures else {})


@lru_cache(maxsize=64)
def compiled(patterns: tuple[LinePattern, ...]) -> Patterns:
    """`Patterns`, one for all the logs that look for the same. Raises as that does."""
    return Patterns(patterns)


def values(match: Match, line: str) -> Iterator[tuple[str, float]]:
    """The gauges that `match` in `line` sets: name and number, which may not be finite."""
    for name, text in match.groups.items():
        if name not in OF_PROGRESS and (number := parse_number(text)) is not None:
            yield name, number
    for key in match.pattern.values:
        if (found := number_at(key, line)) is not None:
            yield key, found
