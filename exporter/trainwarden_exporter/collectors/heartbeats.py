"""Heartbeats: when each last came, what it carried, and how often it should come."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Self

from trainwarden_exporter.collector import Collector, Family, Metric
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.progress.heartbeats import HeartbeatKey, Heartbeats
from trainwarden_exporter.watching import Watch, Watches

INTERVAL = 5.0
"""Seconds between two looks at a file that is touched."""


def _metric(name: str, kind: Literal["gauge", "counter"], text: str) -> Metric:
    return Metric(f"trainwarden_heartbeat_{name}", kind, text, ("run", "name"))


LAST = _metric("timestamp_seconds", "gauge", "When the last beat came.")
PERIOD = _metric(
    "interval_seconds",
    "gauge",
    "Longest time that should pass between two beats, as configured or as the beat says.",
)
STEP = _metric("step", "gauge", "The step that the last beat with one carried.")
BEATS = _metric("beats_total", "counter", "Beats that came, or touches of the file that were seen.")
AWAITED = _metric(
    "awaited_timestamp_seconds",
    "gauge",
    "Since when this exporter has been waiting for it; what was sent before then may be lost.",
)
SEEN = _metric(
    "seen_timestamp_seconds",
    "gauge",
    "When its file was last looked for; while that never could be, since when it is tried.",
)


class HeartbeatsCollector(Collector):
    """Shows the beats that were taken, and looks at the files that are touched instead."""

    name = "heartbeats"
    metrics = (LAST, PERIOD, STEP, BEATS, AWAITED, SEEN)

    def __init__(self, heartbeats: Heartbeats, *, interval: float = INTERVAL) -> None:
        self.heartbeats = heartbeats
        self._files: Watches[tuple[HeartbeatKey, Path], float | None] = Watches(
            {
                (key, one.file): Watch(
                    f"heartbeat {one.file}",
                    lambda path=one.file: read_touch(path),  # type: ignore[misc]
                    interval=interval,
                )
                for key, one in heartbeats.configured.items()
                if one.file is not None
            }
        )

    def adopt(self, predecessor: Self) -> None:
        """Go on with what `predecessor` has taken and seen."""
        self.heartbeats.adopt(predecessor.heartbeats)
        self._files.adopt(predecessor._files)

    def collect(self) -> Iterable[Family]:
        families = {metric: metric.family() for metric in self.metrics}
        for (key, _), watch in self._files:
            seen = watch.seen()
            families[SEEN].add_metric(key, watch.known)
            if seen is not None and seen.value is not None:
                self.heartbeats.touched(key, seen.value)
        known = self.heartbeats.all()
        if not known:
            raise NoData("no heartbeat is configured, and none came")
        for key, beats in known.items():
            configured = self.heartbeats.configured.get(key)
            values = {
                LAST: beats.last,
                PERIOD: (configured.interval if configured else None) or beats.interval,
                STEP: beats.step,
                BEATS: beats.count,
                AWAITED: self.heartbeats.awaited.get(key),
            }
            for metric, value in values.items():
                if value is not None:
                    families[metric].add_metric(key, value)
        self.heartbeats.save()
        return families.values()


def read_touch(path: Path) -> float | None:
    """When the file at `path` was last changed (unix seconds); None where there is none.

    Raises OSError where that cannot be seen.
    """
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None
