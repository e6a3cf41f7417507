"""Metrics of inference servers, and their samples from one observation."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from trainwarden_exporter.inference.engine_stats import Completion
from trainwarden_exporter.inference.health_model import HealthLimits, HealthReason
from trainwarden_exporter.inference.target import ServerHealth, ServerTarget
from trainwarden_exporter.scrape.collector import Metric, MetricTable

Sample = tuple[Metric, tuple[str, ...], float]

_NUMBER_AT_END = re.compile(r"(\d{1,15})\D*$", re.ASCII)

_table = MetricTable("trainwarden_inference_", "run", "server", "engine")
_gauge, _counter = _table.gauge, _table.counter

INFO = _gauge(
    "info", "Always 1; labels name the worker that the server belongs to.", "worker", "role"
)
UP = _gauge(
    "up", "Whether the server serves or is intentionally out of service; 0 while it starts."
)
REASON = _gauge(
    "reason", "1 for the current health reason of the server, 0 for all others.", "reason"
)
STATE_TIME = _gauge("state_timestamp_seconds", "Time since which the server has its current state.")
# Servers that are not ready have separate series with all labels of the alert, so that rules select
# no series of healthy servers.
NOT_READY_SINCE = _gauge(
    "not_ready_since_timestamp_seconds",
    "Time since which the server is not ready for the current reason; absent while it is ready.",
    *("worker", "role", "reason"),
)
NOT_READY_LIMIT = _gauge(
    "not_ready_limit_seconds",
    "Maximum time not ready for the current reason, as configured; absent without a limit.",
    *("worker", "role", "reason"),
)
HTTP_STATUS = _gauge("http_status", "HTTP status of the last liveness probe.")
PROBE_SECONDS = _gauge("probe_seconds", "Duration of the last liveness probe, successful or not.")
FAILURES = _gauge("consecutive_failures", "Consecutive failed probe rounds.")
PROBES = _counter("probes_total", "Probe rounds.")
DEEP_SUCCESS = _gauge("deep_probe_success", "Whether the last one-token completion succeeded.")
DEEP_SECONDS = _gauge("deep_probe_seconds", "Duration of the last one-token completion.")
DEEP_TIME = _gauge("deep_probe_timestamp_seconds", "Start of the last one-token completion.")
DEEP_FAILURES = _gauge("deep_probe_failures", "Consecutive failed one-token completions.")
LAST_PROGRESS = _gauge("progress_timestamp_seconds", "Last observed activity of the server.")
MODELS = _gauge("models", "Models that the server serves.")
RUNNING = _gauge("running_requests", "Requests in execution.")
WAITING = _gauge("waiting_requests", "Requests in the queue.")
KV_USAGE = _gauge("kv_cache_usage_ratio", "KV cache usage of the fullest engine.")
GENERATED = _counter("generated_tokens_total", "Generated tokens as counted by the server.")
PROMPT = _counter("prompt_tokens_total", "Prompt tokens as counted by the server.")
PREEMPTIONS = _counter("preemptions_total", "Requests preempted because of memory shortage.")
ERRORS = _counter("errors_total", "Requests that ended in a server error.")
ABORTS = _counter("aborts_total", "Aborted requests.")
REJECTIONS = _counter("rejections_total", "Requests rejected because the queue was full.")
BACKENDS = _gauge("backends", "Servers behind the router.")
HEALTHY_BACKENDS = _gauge(
    "backends_healthy", "Servers behind the router that it considers healthy."
)
WEIGHTS = _gauge("weight_version", "Version of the weights: the number at the end of its name.")
WEIGHTS_TIME = _gauge(
    "weight_version_timestamp_seconds", "Time since which the weights have this version."
)
START_GRACE = _gauge("start_grace_seconds", "Maximum start-up time, as configured.")
PAUSE_LIMIT = _gauge("pause_limit_seconds", "Maximum pause, as configured.")
LAST_PROBE = _gauge("seen_timestamp_seconds", "Last probe of the server.")

METRICS = _table.metrics


def server_samples(target: ServerTarget, health: ServerHealth | None) -> Iterator[Sample]:
    """Yields the samples of one server; only configured values before its first probe."""
    labels = target.labels
    worker_labels = (*labels, target.config.worker or "", target.config.role)
    yield INFO, worker_labels, 1
    yield START_GRACE, labels, target.config.start_grace
    yield PAUSE_LIMIT, labels, target.config.pause_limit
    if health is None:
        return
    if health.reason is not None:
        for reason in HealthReason:
            yield REASON, (*labels, reason.value), reason is health.reason
        if (cause := not_ready_reason(health)) is not None:
            reason_labels = (*worker_labels, cause.value)
            yield NOT_READY_SINCE, reason_labels, health.reason_timestamp
            if (limit := not_ready_limit(cause, target.limits)) is not None:
                yield NOT_READY_LIMIT, reason_labels, limit
    for metric, value in (*_probe_values(health), *_stats_values(health)):
        if value is not None and math.isfinite(value):
            yield metric, labels, value


def not_ready_reason(health: ServerHealth) -> HealthReason | None:
    """Returns the reason why a server is not ready; None if it is ready, or not known.

    A busy server is ready; beyond its limit it has the alert of a server that does not answer.
    """
    if health.reason is HealthReason.BUSY:
        return HealthReason.TIMEOUT if health.state.overdue else None
    return None if health.reason is HealthReason.OK else health.reason


def not_ready_limit(reason: HealthReason, limits: HealthLimits) -> float | None:
    """Returns the maximum time in seconds with `reason`; None if it has no limit."""
    match reason:
        case HealthReason.STARTING:
            return limits.start_grace
        case HealthReason.PAUSED | HealthReason.SLEEPING | HealthReason.UPDATING_WEIGHTS:
            return limits.pause_limit
    return None


def _probe_values(health: ServerHealth) -> Iterator[tuple[Metric, float | None]]:
    yield UP, health.up
    yield STATE_TIME, None if health.reason is None else health.reason_timestamp
    yield HTTP_STATUS, health.status
    yield PROBE_SECONDS, health.seconds
    yield FAILURES, health.state.failures
    yield PROBES, health.probes
    yield LAST_PROGRESS, health.progress_timestamp
    yield LAST_PROBE, health.timestamp
    if health.last_completion is not None:
        yield DEEP_SUCCESS, health.last_completion.outcome is Completion.DONE
        yield DEEP_SECONDS, health.last_completion.seconds
        yield DEEP_TIME, health.last_completion.timestamp
        yield DEEP_FAILURES, health.state.completion_failures


def _stats_values(health: ServerHealth) -> Iterator[tuple[Metric, float | None]]:
    stats = health.stats
    yield MODELS, None if stats.models is None else len(stats.models)
    yield RUNNING, stats.running
    yield WAITING, stats.waiting
    yield KV_USAGE, stats.kv_usage
    yield GENERATED, stats.generated_tokens
    yield PROMPT, stats.prompt_tokens
    yield PREEMPTIONS, stats.preemptions
    yield ERRORS, stats.errors
    yield ABORTS, stats.aborts
    yield REJECTIONS, stats.rejections
    yield BACKENDS, stats.backends
    yield HEALTHY_BACKENDS, stats.healthy_backends
    yield WEIGHTS, version_number(stats.weight_version)
    yield WEIGHTS_TIME, health.version_timestamp


def version_number(version: str | None) -> float | None:
    """Returns the number at the end of a version, as in `12`, `v12` or `step_000012`.

    Returns None without a number, as for SGLang's `default`.
    """
    match = None if version is None else _NUMBER_AT_END.search(version[-200:])
    return None if match is None else float(match[1])
