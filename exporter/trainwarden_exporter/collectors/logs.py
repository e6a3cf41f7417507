"""Collects the logs of each run: matching lines, values and silence."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Self

from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.logs.counters import MAX_ERROR_LINES, ErrorLine, UnreadStep
from trainwarden_exporter.logs.deduplication import DeduplicationGroups
from trainwarden_exporter.logs.events import Sink
from trainwarden_exporter.logs.file_listing import OutputFiles
from trainwarden_exporter.logs.follower import LogFollower, LogSnapshot
from trainwarden_exporter.logs.specs import LogSpec
from trainwarden_exporter.logs.state import LogState
from trainwarden_exporter.logs.state_store import LogKey, LogStateStore
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.worker_trials import TRIAL_PREFIX
from trainwarden_exporter.runtime.background_poller import BackgroundPoller
from trainwarden_exporter.scrape.collector import Collector, Family, MetricTable, Sample

INTERVAL = 1.0
"""Seconds between two reads of a log."""

_table = MetricTable("trainwarden_log_", "run", "log")
_gauge, _counter = _table.gauge, _table.counter

INFO = _gauge(
    "info", "Always 1; labels name the part of the run that writes the log.", "role", "worker"
)
FILES = _gauge("files", "Existing files of the log.")
SKIPPED = _gauge("skipped_files", "Files of the log that are not read, by reason.", "reason")
SIZE = _gauge("size_bytes", "Total size of the log's files.")
READ = _counter("read_bytes_total", "Bytes read from the log's files.")
LAST_WRITE = _gauge("last_write_timestamp_seconds", "Last write to the log.")
SILENCE = _gauge("silence_limit_seconds", "Maximum time without a write, as configured.")
LAST_SCAN = _gauge("seen_timestamp_seconds", "Last read of the log.")
MATCHES = _counter(
    "matches_total",
    "Lines that match a pattern; a line duplicated in several logs counts once, in the first log.",
    "pattern",
)
LAST_MATCH = _gauge("last_match_timestamp_seconds", "Time of the last matching line.", "pattern")
STREAK = _gauge("match_streak", "Consecutive matching lines since the last reset line.", "pattern")
ERROR_LINES = _counter("error_lines_total", "Lines that match any error pattern.")
VALUE = _gauge("value", "Last value of that name in a log line.", "name")
VALUE_TIME = _gauge("value_timestamp_seconds", "Time of the line with the last value.", "name")
BLOCK_BUFFERED = _gauge(
    "block_buffered", "Whether the writer of the log holds lines back until a block is full."
)
FINITE = _gauge("value_finite", "Whether the last value is finite.", "name")
FINITE_UNTIL = _gauge(
    "value_finite_until_step",
    "Last step whose value was finite, while the last value is not; counted from one.",
    "name",
)
DROPPED = _counter("dropped_total", "Data dropped at a limit: lines that were truncated.", "reason")


class _Log(NamedTuple):
    follower: LogFollower
    poller: BackgroundPoller[LogSnapshot]


class LogsCollector(Collector):
    """Exports the state of each log; each log is read in a thread of its own."""

    name = "logs"
    metrics = _table.metrics

    def __init__(
        self,
        specs: Sequence[LogSpec],
        *,
        state_folder: Path | None = None,
        sinks: Sequence[Sink] = (),
        output_files: Callable[[WorkerKey], Iterable[str]] | None = None,
        now: Callable[[], float] = time.time,
        interval: float = INTERVAL,
    ) -> None:
        """Follows the logs in `specs` and passes each matching line to `sinks`.

        Keeps the read positions in `state_folder`.
        """
        self._specs = {(spec.run, spec.name): spec for spec in specs}
        self._sinks = tuple(sinks)
        self._output_files = output_files
        self._now = now
        self._interval = interval
        self._logs: dict[LogKey, _Log] = {}
        self._states: dict[LogKey, LogState] = {}
        self._deduplication_groups = DeduplicationGroups()
        self._search_lock = Lock()
        self._state_store = LogStateStore(state_folder)
        self._started = False

    def take_over_from(self, predecessor: Self) -> None:
        """Continues where `predecessor` is.

        Unchanged logs keep their threads; others continue from their position.
        """
        self._deduplication_groups = predecessor._deduplication_groups
        self._search_lock = predecessor._search_lock
        self._states |= predecessor._states  # the log was never scraped
        predecessor._state_store.close()
        for key, one in predecessor._logs.items():
            if self._specs.get(key) == one.follower.spec:
                one.follower.sinks = self._sinks
                output_files = self._output_files_of(one.follower.spec.run)
                if output_files is not None:
                    one.follower.set_output_files(output_files)
                self._logs[key] = one
            else:
                one.poller.close()
                self._states[key] = one.follower.retire()

    def close(self) -> None:
        """Stops following and saves the counters."""
        self._state_store.close()
        for follower, poller in self._logs.values():
            poller.close()
            follower.retire()
        self._state_store.save()

    def collect(self) -> Iterable[Family]:
        if not self._specs:
            raise NoData("no logs are configured")
        self._start()
        lines: list[ErrorLine] = []
        families = self.families(
            (metric, (*key, *more), value)
            for key, (follower, poller) in self._logs.items()
            for metric, more, value in self._samples(follower.spec, poller, lines)
        )
        self.artifacts = (*_newest_per_run(lines), *self._unread_steps())
        return families

    def _unread_steps(self) -> Iterator[UnreadStep]:
        for (run, _), (_, poller) in self._logs.items():
            if (seen := poller.result()) is not None and seen.value.unread_step:
                yield UnreadStep(run, seen.value.unread_step)

    def trials_logged(self, worker: WorkerKey) -> int | None:
        """Returns the logged trials of a worker; None before all of its logs are read."""
        logged = 0
        for key, spec in self._specs.items():
            if (spec.run, spec.worker) == worker:
                log = self._logs.get(key)
                if log is None or (seen := log.poller.result()) is None:
                    return None
                matches = seen.value.counts.matches
                logged += sum(n for name, n in matches.items() if name.startswith(TRIAL_PREFIX))
        return logged

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        for key in self._specs.keys() - self._logs.keys():
            self._logs[key] = self._log(key)
        self._logs = {key: self._logs[key] for key in self._specs}
        self._states.clear()
        for _, poller in self._logs.values():
            poller.start()  # start all before waiting for the first
        self._state_store.set_followers(tuple(follower for follower, _ in self._logs.values()))

    def _log(self, key: LogKey) -> _Log:
        spec, handed = self._specs[key], self._states.get(key)
        follower = LogFollower(
            spec,
            self._state_store.load(*key) if handed is None else handed,
            continues=handed is not None,
            deduplicator=self._deduplication_groups.group(spec.run, spec.deduplication_group)
            if spec.deduplication_group
            else None,
            search_lock=self._search_lock,
            output_files=self._output_files_of(spec.run),
            sinks=self._sinks,
            now=self._now,
        )
        poller = BackgroundPoller(
            f"log {spec.name} of {spec.run}", follower.poll, interval=self._interval
        )
        return _Log(follower, poller)

    def _output_files_of(self, run: str) -> OutputFiles | None:
        find = self._output_files
        return None if find is None else lambda worker: find(WorkerKey(run, worker))

    def _samples(
        self, spec: LogSpec, poller: BackgroundPoller[LogSnapshot], lines: list[ErrorLine]
    ) -> Iterator[Sample]:
        yield INFO, (spec.role, spec.worker), 1
        yield SILENCE, (), spec.silence_limit
        seen = poller.result()
        if seen is not None:
            yield LAST_SCAN, (), seen.timestamp
            yield from _file_samples(seen.value)
            yield from _match_samples(spec, seen.value)
            lines += seen.value.error_lines


def _file_samples(seen: LogSnapshot) -> Iterator[Sample]:
    yield FILES, (), seen.files
    yield SIZE, (), seen.size
    yield READ, (), seen.read_bytes
    yield BLOCK_BUFFERED, (), seen.block_buffered
    if seen.last_write:
        yield LAST_WRITE, (), seen.last_write
    yield from ((SKIPPED, (reason,), n) for reason, n in seen.skipped.items())
    yield from ((DROPPED, (reason,), n) for reason, n in seen.dropped.items())
    for name, value in seen.values.items():
        yield VALUE, (name,), value.number
        yield VALUE_TIME, (name,), value.timestamp
        yield FINITE, (name,), value.finite
        if not value.finite:
            yield FINITE_UNTIL, (name,), value.finite_until


def _match_samples(spec: LogSpec, seen: LogSnapshot) -> Iterator[Sample]:
    counts = seen.counts
    yield ERROR_LINES, (), counts.troubles
    for pattern in spec.patterns:
        # A counter that first appears with the value 1 shows no increase; error counters start at
        # 0.
        if pattern.error or pattern.name in counts.matches:
            yield MATCHES, (pattern.name,), counts.matches.get(pattern.name, 0)
    yield from ((LAST_MATCH, (name,), when) for name, when in counts.last_matches.items())
    yield from ((STREAK, (name,), n) for name, n in seen.streaks.items())


def _newest_per_run(lines: Iterable[ErrorLine]) -> Iterator[ErrorLine]:
    """Returns the last error lines of each run over all its logs."""
    left: dict[str, int] = {}
    for line in sorted(lines, key=lambda line: -line.timestamp):
        left[line.run] = left.get(line.run, MAX_ERROR_LINES) - 1
        if left[line.run] >= 0:
            yield line
