"""The numbered errors (XIDs) of the GPU driver, also while it answers nothing else.

A collector of its own, because what makes the driver hang tends to announce itself by an XID.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from trainwarden_exporter.collector import Collector, Family, Metric
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.gpu.xid import describe
from trainwarden_exporter.gpu.xidwatch import XidWatch

_LABELS = ("gpu", "uuid", "xid", "severity")
ERRORS = Metric(
    "trainwarden_gpu_xid_errors_total",
    "counter",
    "XIDs of a GPU since this program began to watch it, from the first one on.",
    _LABELS,
)
LAST = Metric(
    "trainwarden_gpu_xid_last_timestamp_seconds",
    "gauge",
    "When the last one came.",
    _LABELS,
)
OF_WORKER = Metric(
    "trainwarden_worker_gpu_xid_timestamp_seconds",
    "gauge",
    "When the last one came of a GPU where the worker has memory or had within five minutes, by"
    " severity; only where there was one.",
    ("run", "worker", "role", "severity"),
)
WATCHING = Metric("trainwarden_gpu_xid_watching", "gauge", "Whether XIDs are being waited for.")
WATCHED = Metric(
    "trainwarden_gpu_xid_watch_timestamp_seconds",
    "gauge",
    "When the driver last said that there is an XID, or none.",
)


class XidCollector(Collector):
    """Shows what the watch for XIDs has counted; it never calls the driver."""

    name = "xid"
    metrics = (ERRORS, LAST, OF_WORKER, WATCHING, WATCHED)

    def __init__(self, watch: XidWatch) -> None:
        self._watch = watch

    def adopt(self, predecessor: Self) -> None:
        """Go on with the watch of `predecessor`, which goes on counting."""
        self._watch = predecessor._watch

    def collect(self) -> Iterable[Family]:
        if not self._watch.wanted:
            raise NoData("there has been no GPU to watch")
        errors, last, of_worker, watching, watched = (metric.family() for metric in self.metrics)
        moments: dict[tuple[str, ...], float] = {}
        for one in self._watch.counts.all():
            labels = (*one.gpu, str(one.code), describe(one.code).severity)
            errors.add_metric(labels, one.count)
            last.add_metric(labels, one.last_timestamp)
            for user in self._watch.users(one.gpu):
                key = (*user, labels[-1])
                moments[key] = max(one.last_timestamp, moments.get(key, 0.0))
        for key, moment in moments.items():
            of_worker.add_metric(key, moment)
        watching.add_metric([], self._watch.watching)
        if self._watch.last_timestamp is not None:
            watched.add_metric([], self._watch.last_timestamp)
        return [errors, last, of_worker, watching, watched]
