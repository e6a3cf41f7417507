"""What the files of a run show. All times are Unix seconds; None means unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trainwarden.autopsy.files import LogFile
from trainwarden_exporter.frameworks.base import Phase

MAX_TIMES = 2_000
"""Times kept of one kind of line in one file."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log."""

    text: str
    at: float | None
    order: int
    """Number of the line among the matching ones of its file."""
    file: str = ""


@dataclass(slots=True)
class Tally:
    """The lines of one kind in one file."""

    kind: str
    first: Line
    last: Line
    count: int = 1
    times: list[float] = field(default_factory=list)
    """The first ones."""
    codes: dict[str, int] = field(default_factory=dict)
    """Number of lines by the number in the line, such as an exit status."""

    def add(self, line: Line, count: int) -> None:
        self.last = line
        self.count += count
        if line.at is not None and len(self.times) < MAX_TIMES:
            self.times.append(line.at)

    def date_last(self, at: float, since: int) -> None:
        """Sets the time of the last line, if it has none and comes after the one numbered `since`.

        What happened before it may have done so long before.
        """
        if self.last.at is not None or self.last.order <= since:
            return
        is_first = self.first.order == self.last.order
        self.last = replace(self.last, at=at)
        self.first = self.last if is_first else self.first
        if len(self.times) < MAX_TIMES:
            self.times.append(at)

    def shifted(self, seconds: float) -> Tally:
        """Returns the tally with all times changed by `seconds`."""
        return replace(
            self,
            first=shift_line(self.first, seconds),
            last=shift_line(self.last, seconds),
            times=[at + seconds for at in self.times],
        )


def shift_line(line: Line, seconds: float) -> Line:
    return replace(line, at=None if line.at is None else line.at + seconds)


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The numbers of one name in a log."""

    first: float
    low: float
    high: float
    not_finite: int = 0
    """How many in a row are not finite at the end."""
    finite_until: int | None = None
    """The last step with a finite number from which no step was made again; None if unknown."""

    @property
    def was_finite(self) -> bool:
        """Whether any of them is finite."""
        return self.low <= self.high


def with_number(known: ValueRange | None, number: float, step: int | None) -> ValueRange:
    """Returns `known` with the number of one step more, which may be NaN or infinite."""
    if not math.isfinite(number):
        before = ValueRange(number, math.inf, -math.inf) if known is None else known
        steps = [before.finite_until, None if step is None else step - 1]  # a resume goes back
        until = min((one for one in steps if one is not None), default=None)
        return replace(before, not_finite=before.not_finite + 1, finite_until=until)
    if known is None:
        return ValueRange(number, number, number, finite_until=step)
    low, high = min(known.low, number), max(known.high, number)
    return ValueRange(known.first, low, high, finite_until=step)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The run from one start to its end, as one log shows it."""

    file: str
    began_at: float | None = None
    first_step: int | None = None
    last_step: int | None = None
    total: int | None = None
    at_total: bool = False
    """Whether the last step is the last one of the count in its line, as in `step 300/300`."""
    progress_at: float | None = None
    """The last step or other sign of progress."""
    progress_order: int = 0
    """Number of the line of the last progress, or of the end of the attempt before."""
    advances: int = 0
    """Signs of progress without a step, such as trials."""
    phase: Phase | None = None
    phase_at: float | None = None
    after: Mapping[str, Tally] = field(default_factory=dict)
    """What was logged after the last progress, by kind."""
    after_at: float | None = None
    """The last time in the log before the last progress."""
    ended_at: float | None = None
    """The last line of the attempt that has a time, or the end that was recorded of it."""

    @property
    def finished(self) -> bool:
        return self.phase is Phase.FINISHED

    @property
    def has_progress(self) -> bool:
        return self.last_step is not None or self.advances > 0 or self.finished


@dataclass(frozen=True, slots=True)
class LogReading:
    """What one file shows."""

    log: LogFile
    role: str
    tallies: Mapping[str, Tally]
    attempts: tuple[Attempt, ...]
    values: Mapping[str, ValueRange]
    first_at: float | None
    last_at: float | None
    last_lines: tuple[str, ...]
    bytes_read: int
    whole: bool = True
    """Whether the file was read from its beginning to its end."""
    ends_undated: bool = False
    """Whether lines without a time follow the last one with a time."""
    idle_starts: int = 0
    """Starts at the end of the file between which no progress was made."""

    @property
    def name(self) -> str:
        return self.log.name

    def with_end(self, at: float) -> LogReading:
        """Returns this with what no progress followed at `at`, where its lines have no time."""
        if not self.attempts:
            return self
        *before, last = self.attempts
        for tallies in (self.tallies, last.after):
            for tally in tallies.values():
                tally.date_last(at, last.progress_order)
        attempts = (*before, replace(last, ended_at=at))
        if not self.ends_undated:
            return replace(self, attempts=attempts)
        last_at = max(self.last_at or at, at)
        return replace(self, attempts=attempts, last_at=last_at, ends_undated=False)
