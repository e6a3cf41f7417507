"""What the remediator shows of itself. Totals come from the journal, so a restart loses none."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric as AnyFamily

from trainwarden_exporter import __version__
from trainwarden_exporter.app import BUILD_INFO, PROCESS_METRICS, WEB_RELOAD_SUCCESS
from trainwarden_exporter.collector import Family, Metric
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator import guards
from trainwarden_remediator.holdfile import Hold
from trainwarden_remediator.notifying import metrics as notifying
from trainwarden_remediator.notifying.outbox import Queue

MODE = Metric(
    "trainwarden_remediator_mode", "gauge", "Which mode is in force: 1 for it, else 0.", ("mode",)
)
HELD = Metric(
    "trainwarden_remediator_held",
    "gauge",
    "Whether a person has stopped all actions by the hold file.",
)
HOLDS = Metric(
    "trainwarden_remediator_hold",
    "gauge",
    "1 for each hold in force: of a worker, of a run where no worker is named, or of everything.",
    ("run", "worker"),
)
HOLD_ENDS = Metric(
    "trainwarden_remediator_hold_end_timestamp_seconds",
    "gauge",
    "Unix time at which a hold in force ends by itself; not shown of one that a person must lift.",
    ("run", "worker"),
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
PULL = Metric(
    "trainwarden_remediator_pull_timestamp_seconds",
    "gauge",
    "Unix time at which Alertmanager was last asked for alerts, and answered; only in pull mode.",
)
SILENT = Metric(
    "trainwarden_remediator_pipeline_silent",
    "gauge",
    "1 while the alert that always fires has not come for so long that the local brake watches.",
)
BRAKE = Metric(
    "trainwarden_remediator_brake",
    "gauge",
    "1 while the local brake is on: no alerts come, and memory is short.",
)
OLDEST_ACTION = Metric(
    "trainwarden_remediator_oldest_action_timestamp_seconds",
    "gauge",
    "Unix time at which the oldest action that is not at its end was begun; absent without one.",
)
TURN = Metric(
    "trainwarden_remediator_turn_timestamp_seconds",
    "gauge",
    "Unix time at which all that is open was last decided.",
)
BROKEN_OFF = Metric(
    "trainwarden_remediator_turns_broken_off_total",
    "counter",
    "Turns, since the start of the program, that were broken off for want of memory.",
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
    HOLDS,
    HOLD_ENDS,
    WEBHOOKS,
    *TALLIES.values(),
    OPEN_INCIDENTS,
    GAVE_UP,
    WATCHDOG,
    PULL,
    SILENT,
    BRAKE,
    OLDEST_ACTION,
    TURN,
    BROKEN_OFF,
    JOURNAL_SUCCESS,
    RELOAD_SUCCESS,
    RELOAD_TIMESTAMP,
    WEB_RELOAD_SUCCESS,
    *guards.METRICS,
    *notifying.METRICS,
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
    oldest_action: float | None = None
    """Unix seconds; None without one."""
    guards: guards.Guards | None = None
    queues: Mapping[str, Queue | None] = field(default_factory=dict)
    """What each receiver has yet to be told of."""


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
    turned_at: float | None = None
    """Unix seconds; None before the first turn."""
    broken_off: int = 0
    """How many turns were broken off for want of memory."""
    pulled_at: float | None = None
    """When Alertmanager last answered with its alerts; None where it is not asked for them."""
    holds: Sequence[Hold] = ()
    """What a person has stopped."""
    silent: bool = False
    """Whether no alerts come any more,"""
    braking: bool = False
    """and the local brake is on."""


def families(condition: Condition) -> list[AnyFamily]:
    """`condition` as metric families."""
    found: list[AnyFamily] = [
        _single(BUILD_INFO, 1, __version__, platform.python_version()),
        _single(HELD, condition.held),
        _single(JOURNAL_SUCCESS, condition.record is not None),
        _single(SILENT, condition.silent),
        _single(BRAKE, condition.braking),
        _single(RELOAD_SUCCESS, condition.reload_successful),
        _single(RELOAD_TIMESTAMP, condition.reload_timestamp),
        _single(BROKEN_OFF, condition.broken_off),
    ]
    mode, webhooks = MODE.family(), WEBHOOKS.family()
    holds, ends = HOLDS.family(), HOLD_ENDS.family()
    for run, worker in sorted({(hold.run, hold.worker) for hold in condition.holds}):
        holds.add_metric([run, worker], 1)
        same = [hold for hold in condition.holds if (hold.run, hold.worker) == (run, worker)]
        until = [hold.until for hold in same if hold.until is not None]
        if len(until) == len(same):
            ends.add_metric([run, worker], max(until))
    for name in ("observe", "act"):
        mode.add_metric([name], condition.mode == name)
    for code, count in sorted(condition.webhooks.items()):
        webhooks.add_metric([str(code)], count)
    found += [mode, webhooks, holds, ends]
    found += _PROCESS.collect()
    if condition.web_file_successful is not None:
        found.append(_single(WEB_RELOAD_SUCCESS, condition.web_file_successful))
    if condition.pulled_at is not None:
        found.append(_single(PULL, condition.pulled_at))
    if condition.turned_at is not None:
        found.append(_single(TURN, condition.turned_at))
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
    found += notifying.families(record.queues, record.tallies.get("notifications", {}))
    if (beat := record.moments.get("watchdog")) is not None:
        found.append(_single(WATCHDOG, beat))
    if record.guards is not None:
        found += guards.families(record.guards)
    if record.oldest_action is not None:
        found.append(_single(OLDEST_ACTION, record.oldest_action))
    return found


def _single(metric: Metric, value: float, *labels: str) -> Family:
    family = metric.family()
    family.add_metric(labels, value)
    return family
