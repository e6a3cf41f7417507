"""Finds the lines in a block of a log that match patterns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from trainwarden_exporter.frameworks.base import LinePattern
from trainwarden_exporter.logs.line_parser import number_of_key, parse_number
from trainwarden_exporter.logs.re2_patterns import RegexSet, group_names

PROGRESS_GROUPS = frozenset(
    {
        *("step", "total", "seconds", "epochs", "trainer_version", "rollout_version"),
        *("writer", "key", "after"),
    }
)
"""Groups that do not become gauges of the log: the progress has its own, or they are no number."""


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """A pattern that matched, and its named groups."""

    pattern: LinePattern
    groups: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MatchedLine:
    """A line without its end and without colours, and all matching patterns."""

    text: bytes
    matches: tuple[PatternMatch, ...]
    end: int = 0
    """Where the next line begins in the searched text."""

    @property
    def only_hints_at_step(self) -> bool:
        """Whether an operator reads a step in it that no pattern reads."""
        hints = any(match.pattern.hints_at_step for match in self.matches)
        return hints and not any("step" in match.groups for match in self.matches)

    def step_after(self, before: int | None) -> int | None:
        """Returns the step that it names, in the run's numbering; else the one `before`."""
        for match in reversed(self.matches):
            step = parse_number(match.groups.get("step", ""))
            if step is not None and math.isfinite(step) and not match.pattern.error:
                return max(0, int(step) + match.pattern.step_offset)
        return before


class PatternSearch:
    """Searches for all patterns of a log at once. Raises ValueError if they are too large."""

    def __init__(self, patterns: tuple[LinePattern, ...]) -> None:
        self._patterns = patterns
        self._regexes = RegexSet([pattern.regex for pattern in patterns]) if patterns else None
        self._captures = tuple(bool(group_names(pattern.regex)) for pattern in patterns)
        self._other_writers = tuple(
            RegexSet([pattern.other_writers]) if pattern.other_writers else None
            for pattern in patterns
        )

    def search(self, text: bytes, start: int, end: int) -> Iterator[MatchedLine]:
        """Yields the matching lines in the whole lines `text[start:end]`, in order."""
        regexes = self._regexes
        if regexes is None:
            return
        while start < end and (place := regexes.find(text, start, end)) is not None:
            begin = text.rfind(b"\n", start, place) + 1 or start
            stop = text.find(b"\n", place, end)
            stop = end if stop < 0 else stop
            line = bytes(text[begin:stop])
            start = stop + 1
            if matches := tuple(self._matches(regexes, line)):
                yield MatchedLine(line, matches, start)

    def _matches(self, regexes: RegexSet, line: bytes) -> Iterator[PatternMatch]:
        for index in regexes.matching(line):
            groups = regexes.groups(index, line) if self._captures[index] else {}
            others = self._other_writers[index]
            if others is None or not others.matching(groups.get("writer", "").encode()):
                yield PatternMatch(self._patterns[index], groups)


@lru_cache(maxsize=64)
def compile_patterns(patterns: tuple[LinePattern, ...]) -> PatternSearch:
    """Returns a `PatternSearch`, shared by logs with the same patterns. Raises ValueError."""
    return PatternSearch(patterns)


def gauge_values(match: PatternMatch, line: str) -> Iterator[tuple[str, float]]:
    """Yields names and numbers of the gauges that `match` sets; a number may not be finite."""
    for name, text in match.groups.items():
        if name not in PROGRESS_GROUPS and (number := parse_number(text)) is not None:
            yield name, number
    for key in match.pattern.values:
        if (found := number_of_key(key, line)) is not None:
            yield key, found
