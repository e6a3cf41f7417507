"""The remediator's own metrics. Counters come from the journal and survive restarts."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric as AnyFamily

from trainwarden_exporter import __version__
from trainwarden_exporter.scrape.collector import Family, Metric, MetricTable, Sample
from trainwarden_exporter.scrape.process_metrics import (
    BUILD_INFO,
    PROCESS_METRICS,
    WEB_RELOAD_SUCCESS,
)
from trainwarden_remediator.notify import metrics as notifying
from trainwarden_remediator.telemetry.state import BreakerFigures, JournalSummary, RemediatorState

_TABLE = MetricTable("trainwarden_remediator_")
_gauge, _counter = _TABLE.gauge, _TABLE.counter

MODE = _gauge("mode", "1 for the mode in force, 0 for the other.", "mode")
PAUSED = _gauge("paused", "Whether the hold file stops all actions.")
HOLD_INFO = _gauge(
    "hold_info",
    "1 for each hold in force: on a worker, on a run (no worker), or on everything (no run).",
    *("run", "worker"),
)
HOLD_EXPIRY = _gauge(
    "hold_expiry_timestamp_seconds",
    "Unix time at which a hold expires; absent for a hold without an end.",
    *("run", "worker"),
)
WEBHOOKS = _counter(
    "webhooks_total", "Webhook requests since the start of the program, by HTTP status.", "code"
)
RECEIVED = _counter("alerts_received_total", "Alerts received, including repeats.", "status")
DECISIONS = _counter(
    "decisions_total",
    "Decisions by verdict and reason; a decision that repeats the previous one is not counted.",
    *("verdict", "reason"),
)
ACTIONS = _counter(
    "actions_total",
    "Completed actions, before their effect is verified.",
    *("run", "worker", "action", "result"),
)
OUTCOMES = _counter(
    "outcomes_total",
    "Verified outcomes of actions; gave_up: the on-call was notified instead.",
    *("run", "worker", "outcome"),
)
OPEN_INCIDENTS = _gauge(
    "open_incidents", "Open incidents: neither resolved, nor given up, nor stale."
)
INCIDENT_ABANDONED = _gauge(
    "incident_abandoned",
    "1 while a worker that was given up, or is refused an action, needs an operator.",
    *("run", "worker"),
)
WATCHDOG = _gauge(
    "watchdog_timestamp_seconds", "Unix time at which the watchdog alert was last received."
)
PULL = _gauge(
    "pull_timestamp_seconds",
    "Unix time of the last successful poll of Alertmanager; only in pull mode.",
)
ALERTS_STALE = _gauge(
    "alerts_stale",
    "1 while the watchdog alert has not arrived for so long that the failsafe monitors memory.",
)
FAILSAFE_ACTIVE = _gauge(
    "failsafe_active", "1 while the failsafe's alert fires: no alerts arrive, and memory is short."
)
OLDEST_ACTION = _gauge(
    "oldest_action_timestamp_seconds",
    "Unix time at which the oldest action in progress started; absent without one.",
)
LAST_EVALUATION = _gauge(
    "last_evaluation_timestamp_seconds", "Unix time of the last complete decision cycle."
)
EVALUATIONS_ABORTED = _counter(
    "evaluations_aborted_total", "Decision cycles aborted because of memory shortage."
)
JOURNAL_SUCCESS = _gauge(
    "journal_success",
    "Whether the journal could be read for this page, and its last write succeeded.",
)
RELOAD_SUCCESS = _gauge(
    "config_last_reload_successful", "Whether the last configuration reload succeeded."
)
RELOAD_TIMESTAMP = _gauge(
    "config_last_reload_success_timestamp_seconds",
    "Unix time of the last successful configuration reload.",
)
WORKERS_HASH = _gauge(
    "exporter_config_workers_hash",
    "Hash of the workers in the exporter's file, as the remediator has read it.",
)
BREAKER_OPEN = _gauge(
    "breaker_open",
    "1 while the circuit breaker is open: no actions until an operator runs `resume`.",
)
BREAKER_ACTIONS = _gauge(
    "breaker_actions",
    "Number of actions within the circuit breaker's window, without those on runs that other"
    " accounts announce.",
)
BREAKER_LIMIT = _gauge(
    "breaker_limit_actions",
    "Number of actions within the window above which the circuit breaker opens.",
)
BLOCKED_SINCE = _gauge(
    "blocked_since_timestamp_seconds",
    "Unix time since which the oldest firing alert has been refused or waiting for this reason; "
    "absent for reasons that need no action.",
    "reason",
)

COUNTERS: Mapping[str, Metric] = {
    "alerts_received": RECEIVED,
    "decisions": DECISIONS,
    "actions": ACTIONS,
    "outcomes": OUTCOMES,
}
"""The metrics of the journal's counters, by name of the counter."""

_OWN = (BUILD_INFO, *_TABLE.metrics, WEB_RELOAD_SUCCESS)

METRICS: tuple[Metric, ...] = (*_OWN, *notifying.METRICS, *PROCESS_METRICS)
"""Every metric the remediator can show."""

_PROCESS = ProcessCollector(registry=None)


def metric_families(state: RemediatorState) -> list[AnyFamily]:
    families: dict[Metric, Family] = {}
    for metric, labels, value in _samples(state):
        if value is not None:
            families.setdefault(metric, metric.family()).add_metric(labels, value)
    return [*families.values(), *_PROCESS.collect()]


def _samples(state: RemediatorState) -> Iterator[Sample]:
    yield BUILD_INFO, (__version__, platform.python_version()), 1
    for mode in ("observe", "act"):
        yield MODE, (mode,), state.mode == mode
    yield PAUSED, (), state.paused
    yield from _hold_samples(state)
    for code, count in sorted(state.webhooks.items()):
        yield WEBHOOKS, (str(code),), count
    yield PULL, (), state.pulled_at
    yield ALERTS_STALE, (), state.alerts_stale
    yield FAILSAFE_ACTIVE, (), state.failsafe_active
    yield LAST_EVALUATION, (), state.last_cycle_at
    yield EVALUATIONS_ABORTED, (), state.aborted_cycles
    yield RELOAD_SUCCESS, (), state.reload_successful
    yield RELOAD_TIMESTAMP, (), state.reload_timestamp
    yield WORKERS_HASH, (), state.workers_hash
    yield WEB_RELOAD_SUCCESS, (), state.web_config_loaded
    yield JOURNAL_SUCCESS, (), state.journal is not None and state.journal_writable
    if state.journal is not None:
        yield from _journal_samples(state.journal)


def _hold_samples(state: RemediatorState) -> Iterator[Sample]:
    for scope in sorted({(hold.run, hold.worker) for hold in state.holds}):
        yield HOLD_INFO, scope, 1
        same = [hold for hold in state.holds if (hold.run, hold.worker) == scope]
        ends = [hold.until for hold in same if hold.until is not None]
        if len(ends) == len(same):
            yield HOLD_EXPIRY, scope, max(ends)


def _journal_samples(journal: JournalSummary) -> Iterator[Sample]:
    for name, metric in COUNTERS.items():
        for labels, value in sorted(journal.counters.get(name, {}).items()):
            yield metric, labels, value
    yield OPEN_INCIDENTS, (), journal.open_incidents
    for key in journal.given_up:
        yield INCIDENT_ABANDONED, key, 1
    yield WATCHDOG, (), journal.timestamps.get("watchdog")
    yield OLDEST_ACTION, (), journal.oldest_action
    if journal.breaker is not None:
        yield from breaker_samples(journal.breaker)
    yield from notifying.samples(journal.queue_states, journal.counters.get("notifications", {}))


def breaker_samples(breaker: BreakerFigures) -> Iterator[Sample]:
    yield BREAKER_OPEN, (), breaker.breaker_open
    yield BREAKER_ACTIONS, (), breaker.breaker_actions
    yield BREAKER_LIMIT, (), breaker.breaker_limit
    for reason, since in sorted(breaker.blocked_since.items()):
        yield BLOCKED_SINCE, (reason,), since
