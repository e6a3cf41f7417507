"""What the remediator shows of its own guards: what stops it, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainwarden_exporter.collector import Family, Metric

BREAKER_OPEN = Metric(
    "trainwarden_remediator_breaker_open",
    "gauge",
    "1 while nothing is done because too much was done on the box: until a person resumes.",
)
BREAKER_ACTIONS = Metric(
    "trainwarden_remediator_breaker_actions",
    "gauge",
    "Actions on all targets that count against the breaker now.",
)
BREAKER_LIMIT = Metric(
    "trainwarden_remediator_breaker_limit_actions",
    "gauge",
    "So many actions are allowed within the window of the breaker; one more opens it.",
)
BLOCKED_SINCE = Metric(
    "trainwarden_remediator_blocked_since_timestamp_seconds",
    "gauge",
    "Unix time since which the oldest alert that fires has only been refused or kept waiting for "
    "this reason; not shown where nothing need be done.",
    ("reason",),
)

METRICS = (BREAKER_OPEN, BREAKER_ACTIONS, BREAKER_LIMIT, BLOCKED_SINCE)


@dataclass(frozen=True, slots=True)
class Guards:
    """How they stand. Times are Unix seconds."""

    breaker_open: bool
    breaker_actions: int
    breaker_limit: int
    blocked_since: Mapping[str, float]
    """By the reason that is given now."""


def families(guards: Guards) -> Iterable[Family]:
    """`guards` as metric families."""
    for metric, value in (
        (BREAKER_OPEN, guards.breaker_open),
        (BREAKER_ACTIONS, guards.breaker_actions),
        (BREAKER_LIMIT, guards.breaker_limit),
    ):
        family = metric.family()
        family.add_metric([], value)
        yield family
    blocked = BLOCKED_SINCE.family()
    for reason, since in sorted(guards.blocked_since.items()):
        blocked.add_metric([reason], since)
    yield blocked
