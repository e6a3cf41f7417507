"""Reads the time of a log line, long after it was written.

The exporter's parser reads dates and clocks and rejects what is older than a year: it reads lines
as they are written. Here a copied folder may be years old, and logs of the system have formats
of their own: `Feb 15 01:14:02` (syslog, journalctl), `[Sun Feb 15 01:14:02 2026]` (dmesg -T),
`Sun Feb 15 01:14` (last -x). A time without a zone is local, as in the exporter.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from trainwarden_exporter.logs.line_parser import parse_timestamp

OWN_LINE = b"trainwarden: "
"""How the lines of `trainwarden run` begin."""
_HEAD_BYTES = 120
_DAY = 86_400.0
_YEAR = re.compile(rb"(?<!\d)(20\d\d)[-/]?\d\d[-/]?\d\d[ T_-]\d\d:\d\d")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SYSLOG = re.compile(
    rb"\b([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d)(?::(\d\d))?(?:\.\d+)?(?: (20\d\d))?(?!\d)"
)


class LineTimes:
    """Times of the lines of one file, in order.

    Of a clock without a date, only the distance to other lines is certain: a clock that goes back
    begins the next day. `shift` is what has to be added to all times once the last line is known.

    A line of `trainwarden run` has the time of the end of a process: it dates no line below it, and
    does not show that the program itself prints dates.
    """

    def __init__(self, modified: float) -> None:
        self._modified = modified
        self._last_clock: float | None = None
        self._days = 0
        self._has_dates = False
        self.last: float | None = None
        """Time of the last line that has one."""
        self.below: float | None = None
        """Time that a line without one has of a line above it."""

    def read(self, line: bytes) -> float | None:
        """Returns the time of the next `line` (Unix seconds); None without one."""
        head = line[:_HEAD_BYTES]
        found, is_own = self._dated(head), head.startswith(OWN_LINE)
        if found is not None and not is_own:
            self._has_dates = True
        elif not self._has_dates and (clock := self._as_clock(head, found)) is not None:
            found = clock
            # every clock is read as one of the last day before the file was last changed
            if self._last_clock is not None and found < self._last_clock - _DAY / 2:
                self._days += 1
            self._last_clock = found
            found += self._days * _DAY
        if found is not None:
            self.last, self.below = found, None if is_own else found
        return found

    def peek(self, line: bytes) -> float | None:
        """Returns the time of a `line` near the last line read; None without a time."""
        head = line[:_HEAD_BYTES]
        found = self._dated(head)
        if found is None and not self._has_dates and (found := self._clock(head)) is not None:
            found += self._days * _DAY
        return found

    @property
    def shift(self) -> float:
        """Seconds to add to all times of a file whose lines have only a clock."""
        return -_DAY * self._days

    def _dated(self, line: bytes) -> float | None:
        if (year := _YEAR.search(line)) is not None:
            end = datetime(int(year[1]) + 1, 1, 2, tzinfo=UTC).timestamp()
            return parse_timestamp(line, latest=end, fresh=False)
        found = _SYSLOG.search(line)
        if found is None or found[1].decode() not in _MONTHS:
            return None
        month = _MONTHS.index(found[1].decode()) + 1
        day, hour, minute = (int(text) for text in found.group(2, 3, 4))
        latest = datetime.fromtimestamp(self._modified, UTC).year
        for candidate in [int(found[6])] if found[6] else [latest, latest - 1]:
            try:
                parts = (candidate, month, day, hour, minute, int(found[5] or 0))
                datetime(*parts, tzinfo=UTC)  # mktime would take 31 February for 3 March
                at = time.mktime((*parts, 0, 0, -1))
            except (ValueError, OverflowError):
                continue
            if found[6] or at <= self._modified + _DAY:
                return at
        return None

    def _as_clock(self, line: bytes, dated: float | None) -> float | None:
        """Returns the clock of `line`; that of a `dated` one where other lines have clocks."""
        if dated is None:
            return self._clock(line)
        return (
            None if self._last_clock is None else self._modified - (self._modified - dated) % _DAY
        )

    def _clock(self, line: bytes) -> float | None:
        return parse_timestamp(line, latest=self._modified, fresh=False)
