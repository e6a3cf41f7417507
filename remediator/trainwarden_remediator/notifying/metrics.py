"""What the remediator shows of the messages that it sends to people."""

from __future__ import annotations

from collections.abc import Mapping

from trainwarden_exporter.collector import Family, Metric
from trainwarden_remediator.notifying.outbox import Queue

NOTIFICATIONS = Metric(
    "trainwarden_remediator_notifications_total",
    "counter",
    "What people were told of (sent), attempts that failed and are made again (failed), and what "
    "could not be delivered at all (dropped).",
    ("receiver", "result"),
)
WAITING = Metric(
    "trainwarden_remediator_notifications_waiting",
    "gauge",
    "What a receiver has yet to be told of.",
    ("receiver",),
)
OLDEST = Metric(
    "trainwarden_remediator_oldest_notification_timestamp_seconds",
    "gauge",
    "Unix time of the oldest thing that a receiver has yet to be told of; absent without one.",
    ("receiver",),
)
METRICS = (NOTIFICATIONS, WAITING, OLDEST)

_RESULTS = ("sent", "failed", "dropped")

Tally = Mapping[tuple[str, ...], float]


def families(queues: Mapping[str, Queue | None], tally: Tally) -> list[Family]:
    """How it stands with each receiver; also at zero, so that the first failure is an increase."""
    total, waiting, oldest = (metric.family() for metric in METRICS)
    counts: dict[tuple[str, ...], float] = {
        (receiver, result): 0.0 for receiver in queues for result in _RESULTS
    }
    counts.update(tally)
    for labels, value in sorted(counts.items()):
        total.add_metric(labels, value)
    for receiver, queue in queues.items():
        waiting.add_metric([receiver], queue.waiting if queue else 0)
        if queue is not None:
            oldest.add_metric([receiver], queue.since)
    return [total, waiting, oldest]
