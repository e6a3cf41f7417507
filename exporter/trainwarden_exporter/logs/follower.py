"""Follows one log: reads what is new in its files, and counts what it tells."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Lock

from trainwarden_exporter.logs.buffers import Buffers
from trainwarden_exporter.logs.config import LONGEST_LINE
from trainwarden_exporter.logs.copies import Copies
from trainwarden_exporter.logs.events import LineEvent, Sink
from trainwarden_exporter.logs.finding import Files
from trainwarden_exporter.logs.followed import Followed, GoneError, Piece, RewrittenError, needed
from trainwarden_exporter.logs.lines import own_time
from trainwarden_exporter.logs.patterns import TellingLine, compiled
from trainwarden_exporter.logs.specs import LogSpec
from trainwarden_exporter.logs.state import Counts, LogState
from trainwarden_exporter.logs.tally import Source, Tally, TroubleLine, Value

LOOK_SECONDS = 2.0
"""How long a log is read on at once, before what was found so far is shown."""


@dataclass(frozen=True, slots=True)
class LogSeen:
    """A log as a look left it. Moments are unix seconds."""

    files: int = 0
    """That are there now."""
    size: int = 0
    """Of these, in bytes."""
    read_bytes: int = 0
    last_write: float = 0.0
    """0 where nothing was ever written."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Files that are not read, by reason."""
    counts: Counts = field(default_factory=Counts)
    streaks: Mapping[str, int] = field(default_factory=dict)
    """The present ones, by pattern that another one resets."""
    trouble_lines: tuple[TroubleLine, ...] = ()
    values: Mapping[str, Value] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    """What went beyond a bound, by reason."""


class Follower:
    """One log. `look` belongs to one thread; all else may be called from any, and returns at once.

    What was counted and how far was read change together, so that `state` is right at any moment.
    """

    def __init__(
        self,
        spec: LogSpec,
        state: LogState = LogState(),  # noqa: B008 - frozen
        *,
        continues: bool = False,
        copies: Copies | None = None,
        gate: Lock | None = None,
        buffers: Buffers | None = None,
        sinks: Sequence[Sink] = (),
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin where `state` ends; `continues` where it is that of a follower of just now.

        All logs share `gate` and `buffers`: whoever searches holds the one, so that together they
        never take more than one processor, and reads into one of the others.
        """
        self.spec = spec
        self.sinks = tuple(sinks)
        self._now = now
        self._clock = clock
        self._gate = gate or Lock()
        self._buffers = buffers or Buffers(needed(LONGEST_LINE))
        self._lock = Lock()
        self._looking = Lock()
        self._retired = False
        self._files = Files(spec, state, lock=self._lock, continues=continues)
        self._tally = Tally(spec.run, spec.name, spec.patterns, state.counts, copies=copies)
        self._pieces = 0
        self._read_bytes = state.read_bytes
        self._dropped = dict(state.dropped)
        self._last_write = state.last_write

    def look(self) -> LogSeen:
        """Read what is new, for a while. May block as long as the disk does."""
        with self._looking:
            try:
                return self._look()
            finally:
                if self._retired:
                    self._files.close()

    @property
    def changes(self) -> int:
        """Grows whenever `state` changes."""
        return self._pieces + self._files.changes

    def state(self) -> LogState:
        """What to begin with in a later life."""
        with self._lock:
            return LogState(
                bookmarks=self._files.bookmarks,
                left=self._files.left,
                counts=replace(self._tally.counts, copies=self._tally.copies),
                read_bytes=self._read_bytes,
                dropped=dict(self._dropped),
                last_write=self._last_write,
                listed=self._files.listed,
            )

    def retire(self) -> LogState:
        """Count nothing any more: the state for whoever takes over, which stays right."""
        with self._lock:
            self._retired = True
        if self._looking.acquire(blocking=False):
            self._files.close()
            self._looking.release()
        return self.state()

    def _look(self) -> LogSeen:
        now, clock = self._now(), self._clock()
        self._files.find(now, clock)
        written = [one.status.st_mtime for one in self._files if one.status is not None]
        self._last_write = min(max([self._last_write, *written]), now)
        # Those first that had to wait the last time.
        behind = sorted((one for one in self._files if one.unread), key=lambda one: one.caught_up)
        unread = deque(behind)
        while unread and not self._retired and self._clock() < clock + LOOK_SECONDS:
            # One after the other, so that none has to wait for all of another one.
            one = unread.popleft()
            unread += self._read(one)
        self._files.let_go(clock, self._finish)
        return self._seen()

    def _read(self, one: Followed) -> tuple[Followed, ...]:
        """Read a piece of `one`; what there is to read after that."""
        limit = self.spec.longest_line
        try:
            with self._buffers.lend(needed(limit)) as buffer:
                piece = one.next(buffer, limit)
                if piece is None:
                    one.read_up(self._clock())
                    return ()
                self._take(one, piece)
                return (one,)
        except RewrittenError:
            return self._files.begin_anew(one, self._clock())
        except GoneError:
            return ()
        except OSError:
            self._files.skipped[one.bookmark.path] = "unreadable"
            one.close()
            return ()

    def _finish(self, one: Followed) -> None:
        """Nothing is written to `one` any more: its last line ends as it is."""
        limit = self.spec.longest_line
        with suppress(RewrittenError), self._buffers.lend(needed(limit)) as buffer:
            while piece := one.next(buffer, limit, finish=True):
                self._take(one, piece)

    def _take(self, one: Followed, piece: Piece) -> None:
        """Count what stands in `piece`, and tell it."""
        block = piece.block
        with self._gate:
            lines = list(compiled(self.spec.patterns).search(block.text, block.start, block.end))
        events: list[LineEvent] = []
        read = self._now()
        with self._lock:
            if self._retired:
                return
            for line in lines:
                events += self._count(one, piece, line, read)
            one.bookmark = piece.bookmark
            self._read_bytes += block.used
            if block.cut:
                self._dropped["long_line"] = self._dropped.get("long_line", 0) + block.cut
            self._pieces += 1
        for event in events:
            for sink in self.sinks:
                sink(event)

    def _count(
        self, one: Followed, piece: Piece, line: TellingLine, read: float
    ) -> Iterator[LineEvent]:
        latest = read if piece.fresh else min(read, one.modified)
        own = own_time(line.text, latest=latest, fresh=piece.fresh)
        timestamp = read if own is None else own
        told = line.matches
        if piece.counts:
            origin = one.bookmark.origin
            place = origin if self.spec.by_file else one.bookmark.place
            told = self._tally.add(line, Source(origin, place), timestamp)
        elif own is not None:
            self._tally.recall(line, own)
        self._tally.note_values(line, min(timestamp, latest))
        spec = self.spec
        for match in told:
            name, groups = match.pattern.name, match.groups
            yield LineEvent(spec.run, spec.name, spec.role, name, groups, timestamp, piece.fresh)

    def _seen(self) -> LogSeen:
        listed = [one.status for one in self._files if one.listed and one.status is not None]
        tally = self._tally
        return LogSeen(
            files=len(listed),
            size=sum(status.st_size for status in listed),
            read_bytes=self._read_bytes,
            last_write=self._last_write,
            skipped=Counter(self._files.skipped.values()),
            counts=tally.counts,
            streaks=tally.streaks,
            trouble_lines=tally.trouble_lines,
            values=dict(tally.values),
            dropped=dict(self._dropped),
        )
