"""The logs of a run: what stands in them, how often, and for how long nothing has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Literal, NamedTuple, Self

from trainwarden_exporter.collector import Collector, Family, Metric
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.logs.buffers import Buffers
from trainwarden_exporter.logs.config import LONGEST_LINE
from trainwarden_exporter.logs.copies import CopyGroups
from trainwarden_exporter.logs.events import Sink
from trainwarden_exporter.logs.followed import needed
from trainwarden_exporter.logs.follower import Follower, LogSeen
from trainwarden_exporter.logs.keeping import Keeper, LogKey
from trainwarden_exporter.logs.specs import LogSpec
from trainwarden_exporter.logs.state import LogState
from trainwarden_exporter.logs.tally import MOST_TROUBLES, TroubleLine
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.trials import TRIAL
from trainwarden_exporter.watching import Watch

INTERVAL = 1.0
"""Seconds between two looks at a log."""

Sample = tuple[Metric, tuple[str, ...], float]


def _metric(name: str, kind: Literal["gauge", "counter"], text: str, *more: str) -> Metric:
    return Metric(f"trainwarden_log_{name}", kind, text, ("run", "log", *more))


INFO = _metric("info", "gauge", "Always 1; which part of the run writes it.", "role", "worker")
FILES = _metric("files", "gauge", "Files of the log that are there.")
SKIPPED = _metric("skipped_files", "gauge", "Files of it that are not read, by reason.", "reason")
SIZE = _metric("size_bytes", "gauge", "Size of its files.")
READ = _metric("read_bytes_total", "counter", "Bytes read of them.")
LAST_WRITE = _metric("last_write_timestamp_seconds", "gauge", "When it was last written to.")
SILENCE = _metric(
    "silence_limit_seconds", "gauge", "Time for which nothing need be written, as configured."
)
SEEN = _metric("seen_timestamp_seconds", "gauge", "When it was last looked at.")
MATCHES = _metric(
    "matches_total",
    "counter",
    "Lines that match a pattern; of copies in several logs, one in the log that had it first.",
    "pattern",
)
LAST_MATCH = _metric(
    "last_match_timestamp_seconds", "gauge", "When the last of these was written.", "pattern"
)
STREAK = _metric(
    "match_streak", "gauge", "Lines that match since one that ends such a row.", "pattern"
)
TROUBLES = _metric(
    "troubles_total", "counter", "Lines that are signs of trouble, by whatever pattern."
)
VALUE = _metric("value", "gauge", "The last number of that name in a line.", "name")
VALUE_TIME = _metric("value_timestamp_seconds", "gauge", "When that line was written.", "name")
FINITE = _metric("value_finite", "gauge", "Whether that number is finite.", "name")
DROPPED = _metric(
    "dropped_total", "counter", "What went beyond a bound: lines that were cut.", "reason"
)


class _Log(NamedTuple):
    follower: Follower
    watch: Watch[LogSeen]


class LogsCollector(Collector):
    """Shows what is known of each log; each is read in a thread of its own."""

    name = "logs"
    metrics = (
        INFO,
        FILES,
        SKIPPED,
        SIZE,
        READ,
        LAST_WRITE,
        SILENCE,
        SEEN,
        MATCHES,
        LAST_MATCH,
        STREAK,
        TROUBLES,
        VALUE,
        VALUE_TIME,
        FINITE,
        DROPPED,
    )

    def __init__(
        self,
        specs: Sequence[LogSpec],
        *,
        state_folder: Path | None = None,
        sinks: Sequence[Sink] = (),
        now: Callable[[], float] = time.time,
        interval: float = INTERVAL,
    ) -> None:
        """Follow the logs in `specs`, and tell `sinks` of each line that matches.

        How far they were read is kept in `state_folder`.
        """
        self._specs = {(spec.run, spec.name): spec for spec in specs}
        self._sinks = tuple(sinks)
        self._now = now
        self._interval = interval
        self._logs: dict[LogKey, _Log] = {}
        self._states: dict[LogKey, LogState] = {}
        self._copies = CopyGroups()
        self._gate = Lock()
        self._buffers = Buffers(needed(LONGEST_LINE))
        self._keeper = Keeper(state_folder)
        self._begun = False

    def adopt(self, predecessor: Self) -> None:
        """Go on where `predecessor` is.

        What was not changed goes on in its threads; the rest from where they have come to.
        """
        self._copies, self._gate = predecessor._copies, predecessor._gate
        self._buffers = predecessor._buffers
        self._states |= predecessor._states  # of one that nobody has scraped
        predecessor._keeper.close()
        for key, one in predecessor._logs.items():
            if self._specs.get(key) == one.follower.spec:
                one.follower.sinks = self._sinks
                self._logs[key] = one
            else:
                one.watch.close()
                self._states[key] = one.follower.retire()

    def close(self) -> None:
        """Follow nothing any more; what was counted until now is saved."""
        self._keeper.close()
        for follower, watch in self._logs.values():
            watch.close()
            follower.retire()
        self._keeper.save()

    def collect(self) -> Iterable[Family]:
        if not self._specs:
            raise NoData("no logs are configured")
        self._begin()
        families = {metric: metric.family() for metric in self.metrics}
        lines: list[TroubleLine] = []
        for key, (follower, watch) in self._logs.items():
            for metric, more, value in self._samples(follower.spec, watch, lines):
                families[metric].add_metric([*key, *more], value)
        self.notes = tuple(_newest_of_each_run(lines))
        return families.values()

    def trials_told(self, worker: WorkerKey) -> int | None:
        """How many trials the logs of a worker have told of; None before all were looked at."""
        told = 0
        for key, spec in self._specs.items():
            if (spec.run, spec.worker) == worker:
                log = self._logs.get(key)
                if log is None or (seen := log.watch.seen()) is None:
                    return None
                matches = seen.value.counts.matches
                told += sum(n for name, n in matches.items() if name.startswith(TRIAL))
        return told

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        for key in self._specs.keys() - self._logs.keys():
            self._logs[key] = self._log(key)
        self._logs = {key: self._logs[key] for key in self._specs}
        self._states.clear()
        for _, watch in self._logs.values():
            watch.start()  # all, before the first is waited for
        self._keeper.keep(tuple(follower for follower, _ in self._logs.values()))

    def _log(self, key: LogKey) -> _Log:
        spec, handed = self._specs[key], self._states.get(key)
        follower = Follower(
            spec,
            self._keeper.read(*key) if handed is None else handed,
            continues=handed is not None,
            copies=self._copies.group(spec.run, spec.copies) if spec.copies else None,
            gate=self._gate,
            buffers=self._buffers,
            sinks=self._sinks,
            now=self._now,
        )
        watch = Watch(f"log {spec.name} of {spec.run}", follower.look, interval=self._interval)
        return _Log(follower, watch)

    def _samples(
        self, spec: LogSpec, watch: Watch[LogSeen], lines: list[TroubleLine]
    ) -> Iterator[Sample]:
        yield INFO, (spec.role, spec.worker), 1
        if spec.silence_limit is not None:
            yield SILENCE, (), spec.silence_limit
        seen = watch.seen()
        if seen is not None:
            yield SEEN, (), seen.timestamp
            yield from _what_was_seen(seen.value)
            yield from _what_was_counted(spec, seen.value)
            lines += seen.value.trouble_lines


def _what_was_seen(seen: LogSeen) -> Iterator[Sample]:
    yield FILES, (), seen.files
    yield SIZE, (), seen.size
    yield READ, (), seen.read_bytes
    if seen.last_write:
        yield LAST_WRITE, (), seen.last_write
    yield from ((SKIPPED, (reason,), n) for reason, n in seen.skipped.items())
    yield from ((DROPPED, (reason,), n) for reason, n in seen.dropped.items())
    for name, value in seen.values.items():
        yield VALUE, (name,), value.number
        yield VALUE_TIME, (name,), value.timestamp
        yield FINITE, (name,), value.finite


def _what_was_counted(spec: LogSpec, seen: LogSeen) -> Iterator[Sample]:
    counts = seen.counts
    yield TROUBLES, (), counts.troubles
    for pattern in spec.patterns:
        # A counter that comes into being at one shows no increase: trouble counts from zero.
        if pattern.trouble or pattern.name in counts.matches:
            yield MATCHES, (pattern.name,), counts.matches.get(pattern.name, 0)
    yield from ((LAST_MATCH, (name,), when) for name, when in counts.last_matches.items())
    yield from ((STREAK, (name,), n) for name, n in seen.streaks.items())


def _newest_of_each_run(lines: Iterable[TroubleLine]) -> Iterator[TroubleLine]:
    """The last ones of each run, however many logs it has."""
    left: dict[str, int] = {}
    for line in sorted(lines, key=lambda line: -line.timestamp):
        left[line.run] = left.get(line.run, MOST_TROUBLES) - 1
        if left[line.run] >= 0:
            yield line
