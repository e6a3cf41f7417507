"""Collects the numbered errors (XIDs) of the GPU driver, even while it does not answer otherwise.

A separate collector, because an XID often precedes a hanging driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.gpu.xid import describe
from trainwarden_exporter.gpu.xid_watcher import XidWatcher
from trainwarden_exporter.scrape.collector import Collector, Family, Metric, MetricTable, Sample

_LABELS = ("gpu", "uuid", "xid", "severity")
_table = MetricTable("trainwarden_gpu_xid_")
ERRORS = _table.counter(
    "errors_total",
    "XIDs of a GPU since the exporter began to watch it; starts with the first XID.",
    *_LABELS,
)
LAST = _table.gauge("last_timestamp_seconds", "Time of the last XID.", *_LABELS)
OF_WORKER = Metric(
    "trainwarden_worker_gpu_xid_timestamp_seconds",
    "gauge",
    "Time of the last XID, by severity, on a GPU where the worker holds memory or held it "
    "within the last five minutes; absent without one.",
    ("run", "worker", "role", "severity"),
)
WATCHING = _table.gauge("watching", "Whether the exporter waits for XIDs.")
LAST_POLL = _table.gauge(
    "watch_timestamp_seconds",
    "Last answer of the driver to the wait for XIDs, with or without an XID.",
)


class XidCollector(Collector):
    """Exports the counts of the XID watcher; never calls the driver itself."""

    name = "xid"
    metrics = (ERRORS, LAST, OF_WORKER, WATCHING, LAST_POLL)

    def __init__(self, xid_watcher: XidWatcher) -> None:
        self._xid_watcher = xid_watcher

    def take_over_from(self, predecessor: Self) -> None:
        """Continues with the XID watcher of `predecessor`, which keeps counting."""
        self._xid_watcher = predecessor._xid_watcher

    def collect(self) -> Iterable[Family]:
        if not self._xid_watcher.has_gpus:
            raise NoData("no GPU found so far")
        return self.families(self._samples())

    def _samples(self) -> Iterator[Sample]:
        moments: dict[tuple[str, ...], float] = {}
        for one in self._xid_watcher.counts.all():
            labels = (*one.gpu, str(one.code), describe(one.code).severity)
            yield ERRORS, labels, one.count
            yield LAST, labels, one.last_timestamp
            for user in self._xid_watcher.users(one.gpu):
                key = (*user, labels[-1])
                moments[key] = max(one.last_timestamp, moments.get(key, 0.0))
        yield from ((OF_WORKER, key, moment) for key, moment in moments.items())
        yield WATCHING, (), self._xid_watcher.watching
        yield LAST_POLL, (), self._xid_watcher.last_timestamp
