"""Follows one log: reads new lines and counts matches."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Lock

from trainwarden_exporter.frameworks.common_patterns import RESTARTED
from trainwarden_exporter.logs.block_buffering import BlockBuffering
from trainwarden_exporter.logs.counters import ErrorLine, LineCounters, LineSource, LogValue
from trainwarden_exporter.logs.deduplication import LineDeduplicator
from trainwarden_exporter.logs.events import LineEvent, Sink
from trainwarden_exporter.logs.file_listing import OutputFiles
from trainwarden_exporter.logs.file_tracker import FileTracker
from trainwarden_exporter.logs.line_blocks import LineBlock
from trainwarden_exporter.logs.line_parser import parse_timestamp
from trainwarden_exporter.logs.pattern_search import MatchedLine, compile_patterns
from trainwarden_exporter.logs.specs import LogSpec
from trainwarden_exporter.logs.state import Counts, LogState
from trainwarden_exporter.logs.tailed_file import (
    Chunk,
    GoneError,
    RewrittenError,
    TailedFile,
)
from trainwarden_exporter.runtime.account_access import reading_for

POLL_SECONDS = 2.0
"""Maximum duration of one poll in seconds, so that results appear in time."""


MAX_WRITE_AGE_SECONDS = 5.0
"""Maximum age in seconds of the last write to a file that has unread lines. Network file systems
cache file times for longer."""


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """State of a log after a poll. Times are Unix seconds."""

    files: int = 0
    """Number of existing files."""
    size: int = 0
    """Total size in bytes."""
    read_bytes: int = 0
    last_write: float = 0.0
    """0 if nothing was ever written."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Number of skipped files by reason."""
    counts: Counts = field(default_factory=Counts)
    streaks: Mapping[str, int] = field(default_factory=dict)
    """Current streaks by pattern."""
    error_lines: tuple[ErrorLine, ...] = ()
    unread_step: str = ""
    """The last line with a step that is not read, for display."""
    values: Mapping[str, LogValue] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Dropped data by reason."""
    block_buffered: bool = False
    """Whether the writer holds lines back until a block is full."""


class LogFollower:
    """Follows one log. `poll` belongs to one thread; the other methods are thread-safe."""

    def __init__(
        self,
        spec: LogSpec,
        state: LogState = LogState(),  # noqa: B008 - frozen
        *,
        continues: bool = False,
        deduplicator: LineDeduplicator | None = None,
        search_lock: Lock | None = None,
        output_files: OutputFiles | None = None,
        sinks: Sequence[Sink] = (),
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts at `state`; `continues` if it is that of a follower of just now.

        All logs share `search_lock`: a search holds it, so that all logs together use at most one
        CPU.
        """
        self.spec = spec
        self.sinks = tuple(sinks)
        self._now = now
        self._clock = clock
        self._search_lock = search_lock or Lock()
        self._lock = Lock()
        self._polling = Lock()
        self._retired = False
        self._files = FileTracker(
            spec, state, lock=self._lock, continues=continues, output_files=output_files
        )
        self._counters = LineCounters(
            spec.run, spec.name, spec.patterns, state.counts, deduplicator=deduplicator
        )
        self._bars = tuple(pattern for pattern in spec.patterns if pattern.redrawn)
        self._chunks = 0
        self._read_bytes = state.read_bytes
        self._buffering = BlockBuffering()
        self._dropped = dict(state.dropped)
        self._last_write = state.last_write

    def poll(self) -> LogSnapshot:
        """Reads new lines for a limited time. May block on the disk."""
        with self._polling, reading_for(self.spec.account):
            try:
                return self._poll()
            finally:
                if self._retired:
                    self._files.close()

    def set_output_files(self, output_files: OutputFiles) -> None:
        """Replaces the source of the workers' output files."""
        self._files.set_output_files(output_files)

    @property
    def changes(self) -> int:
        """Increases when `state` changes."""
        return self._chunks + self._files.changes

    def state(self) -> LogState:
        """Returns the state for the next start."""
        with self._lock:
            return LogState(
                bookmarks=self._files.bookmarks,
                left=self._files.left,
                counts=replace(self._counters.counts, copies=self._counters.deduplication_counts),
                read_bytes=self._read_bytes,
                dropped=dict(self._dropped),
                last_write=self._last_write,
                listed=self._files.listed,
            )

    def retire(self) -> LogState:
        """Stops counting, and returns the final state for the successor."""
        with self._lock:
            self._retired = True
        if self._polling.acquire(blocking=False):
            self._files.close()
            self._polling.release()
        return self.state()

    def _poll(self) -> LogSnapshot:
        now, clock = self._now(), self._clock()
        self._files.find(now, clock)
        written = [file.status.st_mtime for file in self._files if file.status is not None]
        self._last_write = min(max([self._last_write, *written]), now)
        self._buffering.observe(sum(file.size for file in self._files), clock)
        # Files that had to wait in the last poll come first.
        behind = sorted(
            (file for file in self._files if file.has_unread), key=lambda file: file.caught_up_at
        )
        unread = deque(behind)
        while unread and not self._retired and self._clock() < clock + POLL_SECONDS:
            # Round robin, so that no file waits for all of another one.
            file = unread.popleft()
            unread += self._read(file)
        self._files.release_finished(clock, self._finish)
        return self._snapshot()

    def _read(self, file: TailedFile) -> tuple[TailedFile, ...]:
        """Reads a chunk of `file`; returns the files to read next."""
        limit = self.spec.longest_line
        try:
            chunk = file.next_chunk(limit)
            if chunk is not None:
                self._process(file, chunk)
                return (file,)
            self._process_open_bar(file, limit)
            file.mark_caught_up(self._clock())
        except RewrittenError:
            return self._files.reread_from_start(file, self._clock())
        except GoneError:
            pass
        except OSError:
            self._files.skipped[file.bookmark.path] = "unreadable"
            file.close()
        return ()

    def _process_open_bar(self, file: TailedFile, limit: int) -> None:
        """Passes the current state of a progress bar to the sinks without counting it.

        Its line is counted, and passed again, when the next draw ends it.
        """
        chunk = file.open_bar(limit) if self._bars else None
        if chunk is None:
            return
        block, read, spec = chunk.block, self._now(), self.spec
        events: list[LineEvent] = []
        with self._search_lock:
            lines = list(compile_patterns(self._bars).search(block.text, block.start, block.end))
        with self._lock:
            if self._retired:
                return
            for line in lines:
                timestamp, own = _line_time(file, chunk, line, read)
                timestamp = min(timestamp, read if chunk.fresh else file.modified)
                dated = own is not None or chunk.fresh
                self._counters.record_values(line, timestamp, dated=dated)
                events += (
                    LineEvent(
                        spec.run,
                        spec.name,
                        spec.role,
                        match.pattern.name,
                        match.groups,
                        timestamp,
                        chunk.fresh,
                        is_bound=not dated,
                        missed=chunk.missed,
                    )
                    for match in line.matches
                )
        for event in events:
            for sink in self.sinks:
                sink(event)

    def _finish(self, file: TailedFile) -> None:
        """Finishes `file`: its last line counts without a line end."""
        limit = self.spec.longest_line
        with suppress(RewrittenError):
            while chunk := file.next_chunk(limit, finish=True):
                self._process(file, chunk)

    def _process(self, file: TailedFile, chunk: Chunk) -> None:
        """Counts the matches in `chunk` and passes them to the sinks."""
        block = chunk.block
        with self._search_lock:
            lines = list(
                compile_patterns(self.spec.patterns).search(block.text, block.start, block.end)
            )
        events: list[LineEvent] = []
        read = self._now()
        with self._lock:
            if self._retired:
                return
            begin = block.start
            for line, ended in zip(lines, _ends(lines, read), strict=True):
                self._name_exception(file, block, begin, line.end)
                events += self._count(file, chunk, line, read, ended)
                begin = line.end
            self._name_exception(file, block, begin, block.end)
            file.bookmark = chunk.bookmark
            self._read_bytes += block.used_bytes
            if block.truncated_lines:
                self._dropped["long_line"] = (
                    self._dropped.get("long_line", 0) + block.truncated_lines
                )
            self._chunks += 1
        for event in events:
            for sink in self.sinks:
                sink(event)

    def _name_exception(self, file: TailedFile, block: LineBlock, begin: int, end: int) -> None:
        """Searches the lines for the exception of the traceback before them."""
        if self._counters.awaits_exception(file.bookmark.origin):
            following = block.text[begin:end].decode(errors="replace")
            self._counters.name_exception(file.bookmark.origin, following)

    def _count(
        self, file: TailedFile, chunk: Chunk, line: MatchedLine, read: float, ended: float
    ) -> Iterator[LineEvent]:
        timestamp, own = _line_time(file, chunk, line, read)
        timestamp = min(timestamp, ended)
        latest = read if chunk.fresh else min(read, file.modified)
        matches = line.matches
        if chunk.counts:
            origin = file.bookmark.origin
            place = origin if self.spec.by_file else file.bookmark.place
            matches = self._counters.add(line, LineSource(origin, place), timestamp)
        elif own is not None:
            self._counters.record_uncounted(line, file.bookmark.origin, own)
        timestamp, dated = min(timestamp, latest), own is not None or chunk.fresh
        self._counters.record_values(line, timestamp, dated=dated)
        log = self.spec.run, self.spec.name, self.spec.role
        for match in matches:
            name, groups = match.pattern.name, match.groups
            yield LineEvent(
                *log,
                name,
                groups,
                timestamp,
                chunk.fresh,
                is_bound=not dated,
                missed=chunk.missed,
            )

    def _snapshot(self) -> LogSnapshot:
        listed = [file.status for file in self._files if file.is_listed and file.status is not None]
        counters = self._counters
        return LogSnapshot(
            files=len(listed),
            size=sum(status.st_size for status in listed),
            read_bytes=self._read_bytes,
            last_write=self._last_write,
            skipped=Counter(self._files.skipped.values()),
            counts=counters.counts,
            streaks=counters.streaks,
            error_lines=counters.error_lines,
            unread_step=counters.unread_step,
            values=dict(counters.values),
            dropped=dict(self._dropped),
            block_buffered=self._buffering.detected,
        )


def _line_time(
    file: TailedFile, chunk: Chunk, line: MatchedLine, read: float
) -> tuple[float, float | None]:
    """Returns the time of `line`, and its own time if it has a plausible one (Unix seconds).

    A line without a time of its own was written at the last write to its file, unless the file
    system reports that late: the time of reading is up to a poll later, which distorts step times.
    """
    latest = read if chunk.fresh else min(read, file.modified)
    own = parse_timestamp(line.text, latest=latest, fresh=chunk.fresh)
    if own is not None:
        return own, own
    is_plausible = chunk.fresh and read - MAX_WRITE_AGE_SECONDS <= chunk.written <= read
    return chunk.written if is_plausible else read, None


def _ends(lines: Sequence[MatchedLine], read: float) -> Sequence[float]:
    """Returns for each line when the process that wrote it ended at the latest (Unix seconds).

    Its last lines are read together with the first ones of the next process.
    """
    ended, found = math.inf, deque[float]()
    for line in reversed(lines):
        if any(match.pattern is RESTARTED for match in line.matches):
            ended = parse_timestamp(line.text, latest=read, fresh=False) or ended
        found.appendleft(ended)
    return found
