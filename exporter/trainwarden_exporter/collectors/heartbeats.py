"""Collects heartbeats: last beat, its step and the expected interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.heartbeats.registry import HeartbeatKey, HeartbeatRegistry
from trainwarden_exporter.runtime.background_poller import BackgroundPoller, BackgroundPollers
from trainwarden_exporter.runtime.bounded_calls import bounded_call
from trainwarden_exporter.scrape.collector import Collector, Family, MetricTable, Sample

INTERVAL = 5.0
"""Seconds between two checks of a heartbeat file."""

_table = MetricTable("trainwarden_heartbeat_", "run", "name")
_gauge, _counter = _table.gauge, _table.counter

LAST = _gauge("timestamp_seconds", "Time of the last heartbeat.")
PERIOD = _gauge(
    "interval_seconds",
    "Maximum time between two heartbeats, as configured or as announced by the heartbeat.",
)
STEP = _gauge("step", "Step of the last heartbeat that carried one.")
BEATS = _counter("beats_total", "Heartbeats received, or observed updates of the heartbeat file.")
AWAITED_SINCE = _gauge(
    "awaited_since_timestamp_seconds",
    "Time since which this exporter expects the heartbeat; earlier heartbeats may be lost.",
)
SEEN = _gauge(
    "seen_timestamp_seconds",
    "Last check of the heartbeat file; until the first success, the time of the first attempt.",
)


class HeartbeatsCollector(Collector):
    """Exports received heartbeats and polls heartbeat files."""

    name = "heartbeats"
    metrics = _table.metrics

    def __init__(self, heartbeats: HeartbeatRegistry, *, interval: float = INTERVAL) -> None:
        self.heartbeats = heartbeats
        self._files: BackgroundPollers[tuple[HeartbeatKey, Path], float | None] = BackgroundPollers(
            {
                (key, one.file): BackgroundPoller(
                    f"heartbeat {one.file}",
                    lambda path=one.file: read_modification_time(path),  # type: ignore[misc]
                    interval=interval,
                )
                for key, one in heartbeats.configured.items()
                if one.file is not None
            }
        )

    def take_over_from(self, predecessor: Self) -> None:
        """Continues with the heartbeats and pollers of `predecessor`."""
        self.heartbeats.take_over_from(predecessor.heartbeats)
        self._files.take_over_from(predecessor._files)

    def collect(self) -> Iterable[Family]:
        families = self.families((*self._file_samples(), *self._beat_samples()))
        if not self.heartbeats.all():
            raise NoData("no heartbeat is configured or received")
        self.heartbeats.save()
        return families

    def _file_samples(self) -> Iterator[Sample]:
        for (key, _), poller in self._files:
            seen = poller.result()
            yield SEEN, key, poller.last_known_at
            if seen is not None and seen.value is not None:
                self.heartbeats.record_file_change(key, seen.value)

    def _beat_samples(self) -> Iterator[Sample]:
        for key, beats in self.heartbeats.all().items():
            configured = self.heartbeats.configured.get(key)
            yield LAST, key, beats.last
            yield PERIOD, key, (configured.interval if configured else None) or beats.interval
            yield STEP, key, beats.step
            yield BEATS, key, beats.count
            yield AWAITED_SINCE, key, self.heartbeats.awaited_since.get(key)


def read_modification_time(path: Path) -> float | None:
    """Returns the modification time of `path` (Unix seconds); None if it does not exist.

    Raises OSError if it cannot be read, or its mount does not answer.
    """
    try:
        return bounded_call(path, path.stat).st_mtime
    except FileNotFoundError:
        return None
