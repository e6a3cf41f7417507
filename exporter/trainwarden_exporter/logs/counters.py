"""Counts the matching lines of one log."""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainwarden_exporter.frameworks.base import LinePattern
from trainwarden_exporter.frameworks.error_lines import TRACEBACK, exception_lines
from trainwarden_exporter.logs.deduplication import LineDeduplicator
from trainwarden_exporter.logs.line_parser import shorten_line, strip_prefixes
from trainwarden_exporter.logs.pattern_search import MatchedLine, PatternMatch, gauge_values
from trainwarden_exporter.logs.state import Counts, DeduplicationCounts
from trainwarden_exporter.runtime.redaction import redact

MAX_ERROR_LINES = 20
"""Maximum number of different error lines kept for the status page."""

MAX_STREAMS = 1000
"""Maximum number of files with streaks of their own."""

_ANY_ERROR = ""
"""Stands for all error patterns together, because a line may match several."""

TRACEBACK_SECONDS = 10.0
"""Seconds after the line of a failed trial within which a traceback explains it."""

_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class LogValue:
    """A number from a line, and its time (Unix seconds)."""

    number: float
    timestamp: float
    finite_until: int | None = None
    """The last step with a finite value from which no step was made again; None if unknown."""
    finite_at: float = 0.0
    """A time before this line at which the last line had a finite value; 0 if none is known."""
    dated: bool = False
    """Whether no later line was written at its time already: it is not that of a late reading."""

    @property
    def finite(self) -> bool:
        return math.isfinite(self.number)

    def next(self, number: float, timestamp: float, step: int | None, *, dated: bool) -> LogValue:
        """Returns the value that follows, of `step`."""
        until = step
        if not math.isfinite(number):
            until = self.finite_until
            if until is not None and step is not None:
                until = min(until, step - 1)  # a resume may have gone back
        # lines that were read together have the same time
        before = self.finite and self.dated and self.timestamp < timestamp
        finite_at = self.timestamp if before else self.finite_at
        return LogValue(number, timestamp, until, finite_at, dated)


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """An error line for the status page."""

    run: str
    log: str
    pattern: str
    line: str
    """The last line of its kind, shortened, without control characters."""
    timestamp: float
    """Time of that line (Unix seconds)."""
    count: int
    """Number of lines since the start of the exporter that differ only in numbers."""


@dataclass(frozen=True, slots=True)
class UnreadStep:
    """A line in which an operator reads a step, but no pattern does; redacted, for display."""

    run: str
    line: str


@dataclass(frozen=True, slots=True)
class LineSource:
    """Location of a line."""

    origin: str
    """The stream it belongs to."""
    location: str
    """Its location; copies are in other locations."""


class LineCounters:
    """Counters of the lines of a log. Requires external locking.

    With `deduplicator`, a line that another location contains is not counted again.
    """

    def __init__(
        self,
        run: str,
        log: str,
        patterns: Sequence[LinePattern],
        counts: Counts = Counts(),  # noqa: B008 - frozen
        *,
        deduplicator: LineDeduplicator | None = None,
    ) -> None:
        self.values: dict[str, LogValue] = {}
        self.unread_step = ""
        """The last line with a step that is not read, for display."""
        self._run = run
        self._log = log
        self._deduplicator = deduplicator
        names = {pattern.name for pattern in patterns}
        self._streak_patterns = {pattern.resets for pattern in patterns} & names
        self._matches = {name: n for name, n in counts.matches.items() if name in names}
        self._last = {name: when for name, when in counts.last_matches.items() if name in names}
        self._errors = counts.troubles
        self._streaks = OrderedDict(
            (origin, {name: n for name, n in streak.items() if name in self._streak_patterns})
            for origin, streak in counts.streaks.items()
        )
        self._step: int | None = None
        self._finite_until = dict(counts.finite_until)
        self._finite_at = dict(counts.finite_at)
        self._failed_trials: dict[str, float] = {}
        self._unnamed: dict[str, tuple[str, str]] = {}
        """The last traceback of each stream whose exception is not read yet."""
        self._lines: OrderedDict[tuple[str, str], ErrorLine] = OrderedDict()
        if deduplicator is not None:
            deduplicator.restore(log, counts.copies)

    def add(
        self, line: MatchedLine, source: LineSource, timestamp: float
    ) -> tuple[PatternMatch, ...]:
        """Counts `line`, written at `timestamp`; returns the matches that are not copies."""
        text = line.text.decode(errors="replace")
        counted = tuple(
            match for match in line.matches if self._count(match, source, text, timestamp)
        )
        self._record_streaks(line, source.origin)
        errors = [match.pattern.name for match in line.matches if match.pattern.error]
        if (
            errors
            and not self._explains_failed_trial(line, errors, source.origin, timestamp)
            and (times := self._uncounted_times(_ANY_ERROR, source, text))
        ):
            self._errors += times
            self._record_error(errors[0], text, source.origin, timestamp, times)
        return counted

    def record_uncounted(self, line: MatchedLine, origin: str, timestamp: float) -> None:
        """Records when `line` was written without counting it."""
        errors = [match.pattern.name for match in line.matches if match.pattern.error]
        if errors:
            text = line.text.decode(errors="replace")
            self._record_error(errors[0], text, origin, timestamp, 1)
        for match in line.matches:
            self._record_time(match.pattern.name, timestamp)

    def record_values(self, line: MatchedLine, timestamp: float, *, dated: bool = True) -> None:
        """Records the numbers of `line`; they are of its step, or of the last one before it.

        `dated`: see `LogValue`.
        """
        text = line.text.decode(errors="replace")
        self._step = line.step_after(self._step)
        if line.only_hints_at_step:
            self.unread_step = shorten_line(redact(text))
        for match in line.matches:
            for name, number in gauge_values(match, text):
                until, at = self._finite_until.pop(name, None), self._finite_at.pop(name, 0.0)
                before = LogValue(math.nan, timestamp, until, at)
                known = self.values.get(name, before)
                if known.timestamp <= timestamp:
                    self.values[name] = known.next(number, timestamp, self._step, dated=dated)

    def name_exception(self, origin: str, following: str) -> None:
        """Shows the exception instead of the last traceback of a stream, if `following` names it.

        `following` is what comes after that line, or after the last call, in the stream.
        """
        if (before := self._unnamed.get(origin)) is None:
            return
        raised = next(exception_lines(following.splitlines(), in_traceback=True), None)
        if raised is None:
            return
        del self._unnamed[origin]
        if (line := self._lines.pop(before, None)) is not None:
            self._show(TRACEBACK, raised, line.timestamp, line.count)

    def awaits_exception(self, origin: str) -> bool:
        """Whether the exception of the last traceback of a stream is not read yet."""
        return origin in self._unnamed

    @property
    def counts(self) -> Counts:
        """Returns the counts, without those of the deduplicator."""
        lost = {name: value for name, value in self.values.items() if not value.finite}
        found = {
            name: value.finite_until
            for name, value in lost.items()
            if value.finite_until is not None
        }
        times = {name: value.finite_at for name, value in lost.items()}
        return Counts(
            matches=dict(self._matches),
            last_matches=dict(self._last),
            troubles=self._errors,
            streaks={origin: dict(streak) for origin, streak in self._streaks.items()},
            finite_until={**self._finite_until, **found},
            finite_at={**self._finite_at, **times},
        )

    @property
    def deduplication_counts(self) -> DeduplicationCounts:
        """Returns the state of the deduplicator for this log."""
        return {} if self._deduplicator is None else self._deduplicator.state_of(self._log)

    @property
    def error_lines(self) -> tuple[ErrorLine, ...]:
        """Returns the last error lines, newest last."""
        return tuple(self._lines.values())

    @property
    def streaks(self) -> Mapping[str, int]:
        """Returns the matches since the last reset, for each pattern that another one resets.

        The stream that matched last counts: an earlier one may never match again.
        """
        streams = tuple(reversed(self._streaks.values()))
        return {
            name: next((streak[name] for streak in streams if name in streak), 0)
            for name in self._streak_patterns
        }

    def _count(self, match: PatternMatch, source: LineSource, text: str, timestamp: float) -> bool:
        name = match.pattern.name
        times = self._uncounted_times(name, source, text)
        if times:
            self._matches[name] = self._matches.get(name, 0) + times
            self._record_time(name, timestamp)
        return times > 0

    def _record_time(self, name: str, timestamp: float) -> None:
        self._last[name] = max(timestamp, self._last.get(name, 0.0))

    def _uncounted_times(self, kind: str, source: LineSource, text: str) -> int:
        if self._deduplicator is None:
            return 1
        return self._deduplicator.add(self._log, source.location, kind, strip_prefixes(text))

    def _explains_failed_trial(
        self, line: MatchedLine, errors: Sequence[str], origin: str, timestamp: float
    ) -> bool:
        """Whether the line is the traceback of a trial whose failure was counted.

        A search goes on after a failed trial: its lines are one error, not several.
        """
        if any(match.pattern.error and match.pattern.advances for match in line.matches):
            if len(self._failed_trials) >= MAX_STREAMS:
                self._failed_trials.clear()
            self._failed_trials[origin] = timestamp
            return False
        failed_at = self._failed_trials.get(origin)
        return (
            errors == [TRACEBACK]
            and failed_at is not None
            and abs(timestamp - failed_at) <= TRACEBACK_SECONDS
        )

    def _record_streaks(self, line: MatchedLine, origin: str) -> None:
        # Copies need no deduplication: each stream has its own streak.
        reset = {match.pattern.resets for match in line.matches} & self._streak_patterns
        more = {match.pattern.name for match in line.matches} & self._streak_patterns
        if not reset and not more:
            return
        streak = self._streaks.setdefault(origin, {})
        self._streaks.move_to_end(origin)
        if len(self._streaks) > MAX_STREAMS:
            self._streaks.popitem(last=False)
        for name in reset:
            streak[name] = 0
        for name in more:
            streak[name] = streak.get(name, 0) + 1

    def _record_error(
        self, pattern: str, text: str, origin: str, timestamp: float, times: int
    ) -> None:
        kind = self._show(pattern, text, timestamp, times)
        if pattern == TRACEBACK:
            if len(self._unnamed) >= MAX_STREAMS:
                self._unnamed.clear()
            self._unnamed[origin] = kind
        else:  # a traceback is shown by its exception, which may be a kind of its own
            self._lines.pop((TRACEBACK, kind[1]), None)

    def _show(self, pattern: str, text: str, timestamp: float, times: int) -> tuple[str, str]:
        kind = (pattern, _DIGITS.sub("0", strip_prefixes(text)))
        before = self._lines.pop(kind, None)
        count = times if before is None else before.count + times
        line = ErrorLine(self._run, self._log, pattern, shorten_line(text), timestamp, count)
        self._lines[kind] = line
        if len(self._lines) > MAX_ERROR_LINES:
            self._lines.popitem(last=False)
        return kind
