"""Reads one log from beginning to end, with the patterns and the reducer of the exporter."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainwarden.autopsy import patterns as autopsy_patterns
from trainwarden.autopsy.attempt_ends import (
    MIN_JUMP,
    counts_again,
    is_before_its_time,
    is_last_epoch,
    is_last_step,
    joined,
    shows_failure,
)
from trainwarden.autopsy.bar_states import BarStates
from trainwarden.autopsy.files import LogFile, is_read_whole, read_blocks
from trainwarden.autopsy.line_times import OWN_LINE, LineTimes
from trainwarden.autopsy.log_tail import LogTail
from trainwarden.autopsy.model import Attempt, Line, LogReading, Tally, ValueRange, with_number
from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.frameworks.error_lines import TRACEBACK
from trainwarden_exporter.logs.deduplication import LineDeduplicator
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.logs.line_blocks import LineBlock
from trainwarden_exporter.logs.line_parser import parse_number, shorten_line, strip_prefixes
from trainwarden_exporter.logs.pattern_search import MatchedLine, PatternMatch, compile_patterns
from trainwarden_exporter.progress.counts import resolve_count
from trainwarden_exporter.progress.events import (
    Advanced,
    ProgressEvent,
    StepReported,
    TrainerStarted,
)
from trainwarden_exporter.progress.log_lines import events_from_line
from trainwarden_exporter.progress.reducer import apply
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.runtime.redaction import redact

MAX_MATCHES = 100_000
"""Matching lines of one file, at about 0.1 ms each, before its middle is skipped."""
TAIL_BYTES = 4 << 20
"""Of such a file, this much of the end is read again."""
_LINES_BACK = 40
"""Lines above a line without a time in which its time is sought."""
_EDGE_LINES = 200
_CODES = ("exit_status", "exit_code", "xid")


class LogReader:
    """Reads one file. `copies` counts lines once that are in several files."""

    def __init__(
        self,
        log: LogFile,
        patterns: Sequence[LinePattern],
        *,
        role: str = "",
        copies: LineDeduplicator | None = None,
    ) -> None:
        self._log = log
        self._role = role
        self._copies = copies
        self._search = compile_patterns(tuple(patterns))
        self._times = LineTimes(log.modified)
        self._tallies: dict[str, Tally] = {}
        self._values: dict[str, ValueRange] = {}
        self._progress = RunProgress()
        self._attempt = Attempt(log.name)
        self._attempts: list[Attempt] = []
        self._after: dict[str, Tally] = {}
        self._held: dict[str, Tally] = {}
        """What the last progress followed in the file, if it may have happened before."""
        self._bytes = 0
        self._order = 0
        self._position = 0
        self._first_at: float | None = None
        self._seen_lines = 0
        self._idle_starts = 0
        self._tail = LogTail()
        self._undated: tuple[LineBlock | None, int] = (None, 0)
        self._whole = is_read_whole(log)
        self._tallied = {one.name for one in patterns if _is_tallied(one)}
        self._folded = {one.name for one in patterns if _is_folded(one)}
        self._reporting = {one.name for one in patterns if _reports_progress(one)}
        self._redrawn = {one.name for one in patterns if one.redrawn}
        self._errors = {one.name for one in patterns if one.error}
        self._step_pattern = ""
        self._step: int | None = None
        self._is_last_epoch = self._drawn_again = False
        self._bars = BarStates()
        self._traceback: tuple[PatternMatch, Line] | None = None
        """A traceback whose end, which names the exception, is not read yet."""

    def read(self) -> LogReading:
        """Raises OSError if the file cannot be read."""
        last: deque[LineBlock] = deque()
        for block in read_blocks(self._log):
            if self._order < MAX_MATCHES:
                self._search_block(block)
                continue
            last.append(block)
            # How long a compressed file is shows only its end.
            while sum(one.used_bytes for one in last) - last[0].used_bytes > TAIL_BYTES:
                self._bytes += last.popleft().used_bytes
                self._whole = False
        for block in last:
            self._search_block(block)
        return self._result()

    def _search_block(self, block: LineBlock) -> None:
        if self._first_at is None and self._seen_lines < _EDGE_LINES:
            self._find_first_time(block)
        self._position = block.start
        for line in self._search.search(block.text, block.start, block.end):
            self._add(line, block)
        self._bytes += block.used_bytes
        self._tail.add(block)

    def _find_first_time(self, block: LineBlock) -> None:
        lines = bytes(block.text[block.start : block.end]).splitlines()[:_EDGE_LINES]
        self._seen_lines += len(lines)
        first = LineTimes(self._log.modified)
        self._first_at = next((at for line in lines if (at := first.read(line)) is not None), None)

    def _add(self, line: MatchedLine, block: LineBlock) -> None:
        self._order += 1
        start = block.text.find(line.text, self._position, block.end)
        at = self._times.read(line.text)
        own = self._time_above(block, start, self._position) if at is None else at
        if at is None:
            at = self._time_above(block, start, block.start)
        self._position = start + len(line.text)
        text = line.text.decode(errors="replace")
        kinds = {match.pattern.name for match in line.matches}
        if "interrupted" in kinds and "KeyboardInterrupt" in text:
            self._traceback = None  # of a stop by hand, and no exception
        elif kinds & {TRACEBACK, "raised", *self._reporting}:
            self._end_traceback()
        if own is not None and line.text.startswith(OWN_LINE):
            self._date_end(own)
        self._step, self._is_last_epoch = line.step_after(self._step), is_last_epoch(text)
        self._drawn_again = self._bars.is_drawn_again(line)
        not_finite = [
            self._fold(one, own) for one in line.matches if one.pattern.name in self._folded
        ]
        starts = {"start", "start_failed", autopsy_patterns.FIRST_LINE}
        if kinds & starts or any(one.pattern.phase is Phase.STARTING for one in line.matches):
            self._idle_starts += 1
        shown = Line(text, at, self._order, self._log.name)
        if any(not_finite):
            self._tally(autopsy_patterns.NOT_FINITE, line.matches[0], shown)
        if "interrupted" in kinds:
            kinds -= {"raised", TRACEBACK}
        for kind in kinds & self._tallied:
            match = next(one for one in line.matches if one.pattern.name == kind)
            if kind == TRACEBACK:
                self._traceback = match, shown
            else:
                self._tally(kind, match, shown)

    def _end_traceback(self) -> None:
        if self._traceback is not None:
            self._tally(TRACEBACK, *self._traceback)
            self._traceback = None

    def _date_end(self, at: float) -> None:
        """Takes the end of a process for the time of its last lines, which have none."""
        self._end_traceback()
        for tallies in (self._tallies, self._after):
            for tally in tallies.values():
                tally.date_last(at, self._attempt.progress_order)

    def _time_above(self, block: LineBlock, end: int, begin: int) -> float | None:
        """Returns the time of a line shortly above the position `end`, at or after `begin`.

        A traceback follows a dated line. A progress bar has no time, and the line above may be as
        old as the bar: what is drawn after another match without a dated line between has none.
        """
        text, first = block.text, end
        undated = self._undated[1] if self._undated[0] is block else -1
        for _ in range(_LINES_BACK):
            # the lines above a match without a time are not searched again for the next one
            if end <= begin or end == undated:
                break
            start = text.rfind(b"\n", begin, end - 1) + 1 or begin
            if text.startswith(OWN_LINE, start):
                return None
            if (at := self._times.peek(bytes(text[start:end]))) is not None:
                self._times.last = self._times.below = at
                return at
            end = start
        if begin == block.start:
            self._undated = (block, first)
        return self._times.below if begin == block.start else None

    def _tally(self, kind: str, match: PatternMatch, line: Line) -> None:
        count = 1
        if self._copies is not None:
            count = self._copies.add("", self._log.name, kind, strip_prefixes(line.text))
        if not count:
            return
        for tallies in (self._tallies, self._after):
            known = tallies.get(kind)
            if known is None:
                known = tallies[kind] = Tally(kind, line, line, 0)
            known.add(line, count)
            for name in _CODES:
                if (code := match.groups.get(name)) is not None:
                    known.codes[code] = known.codes.get(code, 0) + 1

    def _fold(self, match: PatternMatch, at: float | None) -> bool:
        """Applies what `match` shows; returns whether it is a loss that is not finite."""
        not_finite = False
        for name, text in match.groups.items():
            if (name.endswith("loss") and not self._drawn_again) or name.startswith("memory_"):
                number = parse_number(text)
                if number is not None:
                    self._values[name] = with_number(self._values.get(name), number, self._step)
                    not_finite = not_finite or not math.isfinite(number)
        if match.pattern.name not in self._reporting:
            return not_finite
        if match.pattern is autopsy_patterns.DONE and not self._attempt.at_total:
            return not_finite
        event = LineEvent(
            "run",
            self._log.name,
            self._role,
            match.pattern.name,
            match.groups,
            (self._times.last or float(self._order)) if at is None else at,
        )
        for found in events_from_line(event, match.pattern, dated=True):  # in order, if not exact
            self._apply(found, at, match.pattern.name)
        return not_finite

    def _apply(self, event: ProgressEvent, at: float | None, pattern: str) -> None:
        at_total = is_last_step(event) or (isinstance(event, Advanced) and self._is_last_epoch)
        if counts_again(self._progress, event):
            self._close_attempt()
            self._progress = RunProgress()
        before = self._progress
        if isinstance(event, TrainerStarted):
            # another command line may have another total; a smaller one would count as a bar of
            # something else
            before = replace(before, total=None, bar_total=None, epoch_total=None)
        if isinstance(event, StepReported):
            state, accepted = resolve_count(before, event, configured_total=None)
            if accepted is None:
                self._progress = state
                return
            before, event = state, accepted
        state = apply(before, event)
        if state.attempt.number != before.attempt.number and self._is_restart(state):
            self._close_attempt()
        self._progress = state
        step = state.step if state.steps else None
        steps = step is not None and step != self._attempt.last_step
        ends = state.finished and not self._attempt.finished
        moved = steps or ends or isinstance(event, Advanced)
        if moved:
            late = not ends and is_before_its_time(self._after, pattern in self._redrawn)
            self._held, self._after = self._after if late else {}, {}
            self._idle_starts = 0
            counts = steps or at_total
            if counts:
                self._step_pattern = pattern if steps else ""
            self._attempt = replace(
                self._attempt,
                at_total=at_total if counts else self._attempt.at_total,
                began_at=at if self._attempt.began_at is None else self._attempt.began_at,
                first_step=step if self._attempt.first_step is None else self._attempt.first_step,
                last_step=step,
                progress_at=at,
                after_at=self._times.last,
                progress_order=self._order,
                advances=self._attempt.advances + isinstance(event, Advanced),
            )
        if moved or state.phase is not before.phase or state.total_steps != self._attempt.total:
            self._attempt = replace(
                self._attempt,
                total=state.total_steps,
                phase=state.phase,
                phase_at=None if at is None else state.phase_began_at,
            )

    def _is_restart(self, state: RunProgress) -> bool:
        """Whether a new attempt is more than lines of several ranks out of order."""
        last, step = self._attempt.last_step, state.step
        if not self._attempt.has_progress:
            return False
        return state.attempt.started or last is None or step is None or step < last - MIN_JUMP

    def _close_attempt(self) -> None:
        after = _as_shown(joined(self._held, self._after))
        ended = replace(self._attempt, after=after, ended_at=self._times.last)
        if self._ends_at_total():
            ended = replace(ended, phase=Phase.FINISHED)
        self._attempts.append(ended)
        self._attempt = Attempt(self._log.name, progress_order=self._order)
        self._held, self._after = {}, {}

    def _ends_at_total(self) -> bool:
        """Whether the attempt made its last step and logged no failure and no other phase after it.

        A progress bar does not show that: it may be that of one epoch or of an evaluation.
        """
        if not self._attempt.at_total or self._step_pattern in self._redrawn:
            return False
        training = self._attempt.phase in (None, Phase.TRAINING)
        return training and not shows_failure(self._after, self._errors)

    def _result(self) -> LogReading:
        times = (self._times.peek(line) for line in reversed(self._tail.lines))
        last_at = next((at for at in times if at is not None), self._times.last)
        self._times.last = last_at  # of the last attempt, too
        self._end_traceback()
        self._close_attempt()
        attempts = [one for one in self._attempts if one.has_progress]
        if not attempts:
            attempts = self._attempts[-1:]
        shift = self._times.shift
        reading = LogReading(
            self._log,
            self._role,
            _as_shown(self._tallies),
            tuple(attempts),
            self._values,
            self._first_at,
            last_at,
            self._tail.shown(),
            self._bytes,
            whole=self._whole,
            ends_undated=any(self._times.peek(line) is None for line in self._tail.lines[-1:]),
            idle_starts=self._idle_starts,
        )
        return _shifted(reading, shift) if shift else reading


def _is_tallied(pattern: LinePattern) -> bool:
    phases = (Phase.STARTING, Phase.WAITING_FOR_ROLLOUTS, Phase.FINISHED)
    named = pattern in autopsy_patterns.ALL or pattern.name == autopsy_patterns.FIRST_LINE
    return pattern.error or named or pattern.phase in phases


def _is_folded(pattern: LinePattern) -> bool:
    """Whether lines of the pattern show progress or a number that is kept."""
    return _reports_progress(pattern) or "loss>" in pattern.regex or "(?P<memory_" in pattern.regex


def _reports_progress(pattern: LinePattern) -> bool:
    reported = pattern.phase or pattern.ends or pattern.advances
    return bool(reported or "(?P<step>" in pattern.regex or "(?P<total>" in pattern.regex)


def _as_shown(tallies: Mapping[str, Tally]) -> dict[str, Tally]:
    """Returns the tallies with their lines as they may be shown: short, and without secrets."""

    def shown(line: Line) -> Line:
        return replace(line, text=redact(shorten_line(line.text)))

    return {
        kind: replace(tally, first=shown(tally.first), last=shown(tally.last))
        for kind, tally in tallies.items()
    }


def _shifted(reading: LogReading, seconds: float) -> LogReading:
    """Returns `reading` with the times of clocks without a date on the right days."""

    def moved(at: float | None) -> float | None:
        return None if at is None else at + seconds

    def tallies(found: Mapping[str, Tally]) -> dict[str, Tally]:
        return {kind: tally.shifted(seconds) for kind, tally in found.items()}

    return replace(
        reading,
        tallies=tallies(reading.tallies),
        attempts=tuple(
            replace(
                one,
                began_at=moved(one.began_at),
                progress_at=moved(one.progress_at),
                after_at=moved(one.after_at),
                phase_at=moved(one.phase_at),
                ended_at=moved(one.ended_at),
                after=tallies(one.after),
            )
            for one in reading.attempts
        ),
        last_at=moved(reading.last_at),
        # the first line was read before any day had passed
        first_at=moved(reading.first_at),
    )
