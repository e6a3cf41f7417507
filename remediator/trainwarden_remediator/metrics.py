"""What the remediator shows of itself. Totals come from the journal, so a restart loses none."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric as AnyFamily

from trainwarden_exporter import __version__
from trainwarden_exporter.app import BUILD_INFO, PROCESS_METRICS, WEB_RELOAD_SUCCESS
from trainwarden_exporter.collector import Family, Metric
from trainwarden_exporter.processes.matching import WorkerKey

MODE = Metric(
    "trainwarden_remediator_mode", "gauge", "Which mode is in force: 1 for it, else 0.", ("mode",)
)
HELD = Metric(
    "trainwarden_remediator_held",
    "gauge",
    "Whether a person has stopped all actions by the hold file.",
)
WEBHOOKS = Metric(
    "trainwarden_remediator_webhooks_total",
    "counter",
    "Webhook requests answered since the start of the program, by HTTP status.",
    ("code",),
)
RECEIVED = Metric(
    "trainwarden_remediator_alerts_received_total",
    "counter",
    "Alerts in the webhooks journaled, repeats included.",
    ("status",),
)
DECISIONS = Metric(
    "trainwarden_remediator_decisions_total",
    "counter",
    "Decisions by what was decided and why; one that only repeats the last is not counted.",
    ("verdict", "reason"),
)
ACTIONS = Metric(
    "trainwarden_remediator_actions_total",
    "counter",
    "Actions that came to an end, before their effect was verified.",
    ("run", "worker", "action", "result"),
)
OUTCOMES = Metric(
    "trainwarden_remediator_outcomes_total",
    "counter",
    "Whether actions helped, as verified afterwards; gave_up: a person was called instead.",
    ("run", "worker", "outcome"),
)
OPEN_INCIDENTS = Metric(
    "trainwarden_remediator_open_incidents",
    "gauge",
    "Alerts that are being watched: neither resolved nor given up nor forgotten.",
)
GAVE_UP = Metric(
    "trainwarden_remediator_gave_up",
    "gauge",
    "1 while the alert about a worker stands that was given up: a person is needed.",
    ("run", "worker"),
)
WATCHDOG = Metric(
    "trainwarden_remediator_watchdog_timestamp_seconds",
    "gauge",
    "Unix time at which the alert that always fires was last received.",
)
JOURNAL_SUCCESS = Metric(
    "trainwarden_remediator_journal_success",
    "gauge",
    "Whether the journal could be read for this page.",
)
RELOAD_SUCCESS = Metric(
    "trainwarden_remediator_config_last_reload_successful",
    "gauge",
    "Whether the last reading of the configuration files went well.",
)
RELOAD_TIMESTAMP = Metric(
    "trainwarden_remediator_config_last_reload_success_timestamp_seconds",
    "gauge",
    "Unix time at which the configuration in force was read.",
)
TALLIES: Mapping[str, Metric] = {
    "alerts_received": RECEIVED,
    "decisions": DECISIONS,
    "actions": ACTIONS,
    "outcomes": OUTCOMES,
}
"""The totals that the journal keeps, by its name for them."""

METRICS: tuple[Metric, ...] = (
    BUILD_INFO,
    MODE,
    HELD,
    WEBHOOKS,
    *TALLIES.values(),
    OPEN_INCIDENTS,
    GAVE_UP,
    WATCHDOG,
    JOURNAL_SUCCESS,
    RELOAD_SUCCESS,
    RELOAD_TIMESTAMP,
    WEB_RELOAD_SUCCESS,
    *PROCESS_METRICS,
)
"""Every metric the remediator can show."""


_PROCESS = ProcessCollector(registry=None)


@dataclass(frozen=True, slots=True)
class Record:
    """What the journal has to say for one page."""

    tallies: Mapping[str, Mapping[tuple[str, ...], float]]
    moments: Mapping[str, float]
    given_up: tuple[WorkerKey, ...]
    open_incidents: int


@dataclass(frozen=True, slots=True)
class Condition:
    """How the program stands. `record` is None when the journal cannot be read."""

    mode: str
    held: bool
    reload_successful: bool
    reload_timestamp: float
    web_file_successful: bool | None
    """None without a web config file."""
    webhooks: Mapping[int, int]
    record: Record | None


def families(condition: Condition) -> list[AnyFamily]:
    """`condition` as metric families."""
    found: list[AnyFamily] = [
        _single(BUILD_INFO, 1, __version__, platform.python_version()),
        _single(HELD, condition.held),
        _single(JOURNAL_SUCCESS, condition.record is not None),
        _single(RELOAD_SUCCESS, condition.reload_successful),
        _single(RELOAD_TIMESTAMP, condition.reload_timestamp),
    ]
    mode, webhooks = MODE.family(), WEBHOOKS.family()
    for name in ("observe", "act"):
        mode.add_metric([name], condition.mode == name)
    for code, count in sorted(condition.webhooks.items()):
        webhooks.add_metric([str(code)], count)
    found += [mode, webhooks]
    found += _PROCESS.collect()
    if condition.web_file_successful is not None:
        found.append(_single(WEB_RELOAD_SUCCESS, condition.web_file_successful))
    return found if condition.record is None else [*found, *_recorded(condition.record)]


def _recorded(record: Record) -> list[Family]:
    found = [_single(OPEN_INCIDENTS, record.open_incidents)]
    for name, metric in TALLIES.items():
        family = metric.family()
        for labels, value in sorted(record.tallies.get(name, {}).items()):
            family.add_metric(labels, value)
        found.append(family)
    gave_up = GAVE_UP.family()
    for key in record.given_up:
        gave_up.add_metric(key, 1)
    found.append(gave_up)
    if (beat := record.moments.get("watchdog")) is not None:
        found.append(_single(WATCHDOG, beat))
    return found


def _single(metric: Metric, value: float, *labels: str) -> Family:
    family = metric.family()
    family.add_metric(labels, value)
    return family
