"""Counts what the lines of one log tell."""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainwarden_exporter.layouts.base import LinePattern
from trainwarden_exporter.logs.copies import Copies
from trainwarden_exporter.logs.lines import bare, shown
from trainwarden_exporter.logs.patterns import Match, TellingLine, values
from trainwarden_exporter.logs.state import CopyCounts, Counts

MOST_TROUBLES = 20
"""Different lines of trouble that are kept for people to see."""

MOST_STREAMS = 1000
"""Files whose streaks are kept apart."""

_TROUBLE = ""
"""Stands for all the patterns of trouble together, of which a line may match several."""

_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Value:
    """A number that a line told, and when (unix seconds)."""

    number: float
    timestamp: float

    @property
    def finite(self) -> bool:
        return math.isfinite(self.number)


@dataclass(frozen=True, slots=True)
class TroubleLine:
    """A line that is a sign of trouble, for the status page; see `Collector.notes`."""

    run: str
    log: str
    pattern: str
    line: str
    """The last of its kind, cut, without control characters."""
    timestamp: float
    """Of that one (unix seconds)."""
    count: int
    """How many there were since this program began that differ in nothing but numbers."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a line stands."""

    origin: str
    """The stream that it belongs to."""
    place: str
    """What its copies stand elsewhere than."""


class Tally:
    """What the lines of a log came to. Belongs to whoever locks it.

    With `copies`, a line that another place told already is not counted again.
    """

    def __init__(
        self,
        run: str,
        log: str,
        patterns: Sequence[LinePattern],
        counts: Counts = Counts(),  # noqa: B008 - frozen
        *,
        copies: Copies | None = None,
    ) -> None:
        self.values: dict[str, Value] = {}
        self._run = run
        self._log = log
        self._copies = copies
        names = {pattern.name for pattern in patterns}
        self._in_rows = {pattern.resets for pattern in patterns} & names
        self._matches = {name: n for name, n in counts.matches.items() if name in names}
        self._last = {name: when for name, when in counts.last_matches.items() if name in names}
        self._troubles = counts.troubles
        self._streaks = OrderedDict(
            (origin, {name: n for name, n in streak.items() if name in self._in_rows})
            for origin, streak in counts.streaks.items()
        )
        self._lines: OrderedDict[tuple[str, str], TroubleLine] = OrderedDict()
        if copies is not None:
            copies.restore(log, counts.copies)

    def add(self, line: TellingLine, source: Source, timestamp: float) -> tuple[Match, ...]:
        """Count `line`, written at `timestamp`: its matches that are no copies."""
        text = line.text.decode(errors="replace")
        told = tuple(match for match in line.matches if self._count(match, source, text, timestamp))
        self._note_streaks(line, source.origin)
        troubles = [match.pattern.name for match in line.matches if match.pattern.trouble]
        if troubles and (times := self._times(_TROUBLE, source, text)):
            self._troubles += times
            self._note_trouble(troubles[0], text, timestamp, times)
        return told

    def recall(self, line: TellingLine, timestamp: float) -> None:
        """Show that `line` was written at `timestamp`; it counts not, or was counted before."""
        troubles = [match.pattern.name for match in line.matches if match.pattern.trouble]
        if troubles:
            self._note_trouble(troubles[0], line.text.decode(errors="replace"), timestamp, 1)
        for match in line.matches:
            self._note_time(match.pattern.name, timestamp)

    def note_values(self, line: TellingLine, timestamp: float) -> None:
        """Take the numbers of `line`, and no more."""
        text = line.text.decode(errors="replace")
        for match in line.matches:
            for name, number in values(match, text):
                known = self.values.get(name)
                if known is None or known.timestamp <= timestamp:
                    self.values[name] = Value(number, timestamp)

    @property
    def counts(self) -> Counts:
        """What there is to count until now, but for `copies`."""
        return Counts(
            matches=dict(self._matches),
            last_matches=dict(self._last),
            troubles=self._troubles,
            streaks={origin: dict(streak) for origin, streak in self._streaks.items()},
        )

    @property
    def copies(self) -> CopyCounts:
        """What is known of the lines that others may repeat."""
        return {} if self._copies is None else self._copies.part(self._log)

    @property
    def trouble_lines(self) -> tuple[TroubleLine, ...]:
        """The last ones, newest last."""
        return tuple(self._lines.values())

    @property
    def streaks(self) -> Mapping[str, int]:
        """Of each pattern that another one resets, the matches since that happened last.

        In the stream that spoke of it last: an earlier one may never do so again.
        """
        streams = tuple(reversed(self._streaks.values()))
        return {
            name: next((streak[name] for streak in streams if name in streak), 0)
            for name in self._in_rows
        }

    def _count(self, match: Match, source: Source, text: str, timestamp: float) -> bool:
        name = match.pattern.name
        times = self._times(name, source, text)
        if times:
            self._matches[name] = self._matches.get(name, 0) + times
            self._note_time(name, timestamp)
        return times > 0

    def _note_time(self, name: str, timestamp: float) -> None:
        self._last[name] = max(timestamp, self._last.get(name, 0.0))

    def _times(self, kind: str, source: Source, text: str) -> int:
        if self._copies is None:
            return 1
        return self._copies.add(self._log, source.place, kind, bare(text))

    def _note_streaks(self, line: TellingLine, origin: str) -> None:
        # Copies are no matter here: each stream has a streak of its own.
        reset = {match.pattern.resets for match in line.matches} & self._in_rows
        more = {match.pattern.name for match in line.matches} & self._in_rows
        if not reset and not more:
            return
        streak = self._streaks.setdefault(origin, {})
        self._streaks.move_to_end(origin)
        if len(self._streaks) > MOST_STREAMS:
            self._streaks.popitem(last=False)
        for name in reset:
            streak[name] = 0
        for name in more:
            streak[name] = streak.get(name, 0) + 1

    def _note_trouble(self, pattern: str, text: str, timestamp: float, times: int) -> None:
        kind = (pattern, _DIGITS.sub("0", bare(text)))
        before = self._lines.pop(kind, None)
        count = times if before is None else before.count + times
        line = TroubleLine(self._run, self._log, pattern, shown(text), timestamp, count)
        self._lines[kind] = line
        if len(self._lines) > MOST_TROUBLES:
            self._lines.popitem(last=False)
