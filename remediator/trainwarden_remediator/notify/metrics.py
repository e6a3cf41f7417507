"""Metrics of the notifications that the remediator sends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainwarden_exporter.scrape.collector import MetricTable, Sample
from trainwarden_remediator.notify.outbox import QueueState

_TABLE = MetricTable("trainwarden_remediator_", "receiver")

NOTIFICATIONS = _TABLE.counter(
    "notifications_total",
    "Notifications delivered (sent), failed attempts that are retried (failed), and notifications "
    "that were never delivered (dropped).",
    "result",
)
WAITING = _TABLE.gauge(
    "notifications_waiting", "Notifications that wait for delivery to a receiver."
)
OLDEST = _TABLE.gauge(
    "oldest_notification_timestamp_seconds",
    "Unix time of the oldest notification that waits for delivery to a receiver; absent without "
    "one.",
)
METRICS = _TABLE.metrics

_RESULTS = ("sent", "failed", "dropped")

Tally = Mapping[tuple[str, ...], float]


def samples(queue_states: Mapping[str, QueueState | None], tally: Tally) -> Iterator[Sample]:
    """Yields the samples of all receivers; counters start at 0 so that a first failure shows."""
    counts: dict[tuple[str, ...], float] = {
        (receiver, result): 0.0 for receiver in queue_states for result in _RESULTS
    }
    counts.update(tally)
    for labels, value in sorted(counts.items()):
        yield NOTIFICATIONS, labels, value
    for receiver, queue in queue_states.items():
        yield WAITING, (receiver,), queue.pending if queue else 0
        yield OLDEST, (receiver,), queue.oldest_at if queue else None
