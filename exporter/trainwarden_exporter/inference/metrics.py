"""The metrics of inference servers, and the samples that one sighting makes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Literal

from trainwarden_exporter.collector import Metric
from trainwarden_exporter.inference.reading import Completion, Life
from trainwarden_exporter.inference.target import Sighting, Target
from trainwarden_exporter.inference.verdict import Limits, Reason

Sample = tuple[Metric, tuple[str, ...], float]

_LABELS = ("run", "server", "engine")
_NUMBER_AT_END = re.compile(r"(\d{1,15})\D*$", re.ASCII)


def _metric(name: str, kind: Literal["gauge", "counter"], text: str, *more: str) -> Metric:
    return Metric(f"trainwarden_inference_{name}", kind, text, (*_LABELS, *more))


def _gauge(name: str, text: str, *more: str) -> Metric:
    return _metric(name, "gauge", text, *more)


def _counter(name: str, text: str, *more: str) -> Metric:
    return _metric(name, "counter", text, *more)


INFO = _gauge("info", "Always 1; its labels say which worker a server is.", "worker", "role")
UP = _gauge(
    "up", "Whether the server serves, or does not because it was told so; 0 while it starts."
)
REASON = _gauge("reason", "1 for how the server is, 0 for all else it could be.", "reason")
STATE_TIME = _gauge("state_timestamp_seconds", "Since when the server is as it is.")
# What is not ok has series of its own, with all that an alert is to carry, so that rules select
# nothing of the servers that are well: Prometheus pays for each series it selects.
AWAY = _gauge(
    "away_timestamp_seconds",
    "Since when the server is as `reason` says; only while that is not ok.",
    *("worker", "role", "reason"),
)
AWAY_LIMIT = _gauge(
    "away_limit_seconds",
    "How long it may be as `reason` says, as configured; only while it is, and that has a limit.",
    *("worker", "role", "reason"),
)
STATUS = _gauge("http_status", "HTTP status of the last answer to whether it is there.")
SECONDS = _gauge("probe_seconds", "Seconds it took to answer, or not to, whether it is there.")
FAILURES = _gauge("consecutive_failures", "Rounds in a row in which it did not serve.")
PROBES = _counter("probes_total", "Rounds in which the server was asked.")
FAILED_PROBES = _counter(
    "probe_failures_total", "Rounds in which it did not serve, by what was found.", "kind"
)
DEEP_SUCCESS = _gauge("deep_probe_success", "Whether the last completion of one token came.")
DEEP_SECONDS = _gauge("deep_probe_seconds", "Seconds that the last completion of one token took.")
DEEP_TIME = _gauge("deep_probe_timestamp_seconds", "When one token was last asked for.")
DEEP_FAILURES = _gauge("deep_probe_failures", "Completions of one token that failed in a row.")
WORKED = _gauge("progress_timestamp_seconds", "When it was last seen to get something done.")
MODELS = _gauge("models", "Models that it serves.")
RUNNING = _gauge("running_requests", "Requests that are being worked on.")
WAITING = _gauge("waiting_requests", "Requests that wait to be worked on.")
KV_USAGE = _gauge("kv_cache_usage_ratio", "Share of the KV cache in use, of the fullest engine.")
GENERATED = _counter("generated_tokens_total", "Tokens generated, as the server counts them.")
PROMPT = _counter("prompt_tokens_total", "Tokens of prompts, as the server counts them.")
PREEMPTIONS = _counter("preemptions_total", "Requests put back for want of memory.")
ERRORS = _counter("errors_total", "Requests that ended in an error of the server.")
ABORTS = _counter("aborts_total", "Requests that were given up.")
REJECTIONS = _counter("rejections_total", "Requests not taken in because the queue was full.")
BACKENDS = _gauge("backends", "Servers behind a router.")
HEALTHY_BACKENDS = _gauge("backends_healthy", "Those of them that the router thinks are healthy.")
WEIGHTS = _gauge("weight_version", "Version of the weights: the number its name ends in.")
WEIGHTS_TIME = _gauge("weight_version_timestamp_seconds", "Since when the weights have it.")
START_GRACE = _gauge("start_grace_seconds", "How long it may take to start, as configured.")
PAUSE_LIMIT = _gauge("pause_limit_seconds", "How long it may be paused, as configured.")
SEEN = _gauge("seen_timestamp_seconds", "When the server was last asked.")

METRICS = (
    *(INFO, UP, REASON, STATE_TIME, AWAY, AWAY_LIMIT, STATUS, SECONDS, FAILURES),
    *(PROBES, FAILED_PROBES),
    *(DEEP_SUCCESS, DEEP_SECONDS, DEEP_TIME, DEEP_FAILURES, WORKED, MODELS, RUNNING, WAITING),
    *(KV_USAGE, GENERATED, PROMPT, PREEMPTIONS, ERRORS, ABORTS, REJECTIONS),
    *(BACKENDS, HEALTHY_BACKENDS, WEIGHTS, WEIGHTS_TIME, START_GRACE, PAUSE_LIMIT, SEEN),
)

_FAILINGS = tuple(life.value for life in Life if life is not Life.SERVING)


def server_samples(target: Target, sighting: Sighting | None) -> Iterator[Sample]:
    """What is known of one server; of one that has not been asked yet, what is configured."""
    labels = target.labels
    whose = (*labels, target.config.worker or "", target.config.role)
    yield INFO, whose, 1
    yield START_GRACE, labels, target.config.start_grace
    yield PAUSE_LIMIT, labels, target.config.pause_limit
    if sighting is None:
        return
    if sighting.reason is not None:
        for reason in Reason:
            yield REASON, (*labels, reason.value), reason is sighting.reason
        if sighting.reason is not Reason.OK:
            how = (*whose, sighting.reason.value)
            yield AWAY, how, sighting.reason_timestamp
            if (limit := away_limit(sighting.reason, target.limits)) is not None:
                yield AWAY_LIMIT, how, limit
    for kind in _FAILINGS:
        yield FAILED_PROBES, (*labels, kind), sighting.failures.get(kind, 0)
    for metric, value in (*_of_probes(sighting), *_of_reading(sighting)):
        if value is not None and math.isfinite(value):
            yield metric, labels, value


def away_limit(reason: Reason, limits: Limits) -> float | None:
    """Seconds for which a server may be as `reason` says; None where that is no matter of time."""
    match reason:
        case Reason.STARTING:
            return limits.start_grace
        case Reason.PAUSED | Reason.SLEEPING | Reason.UPDATING_WEIGHTS:
            return limits.pause_limit
    return None


def _of_probes(sighting: Sighting) -> Iterator[tuple[Metric, float | None]]:
    yield UP, sighting.up
    yield STATE_TIME, None if sighting.reason is None else sighting.reason_timestamp
    yield STATUS, sighting.status
    yield SECONDS, sighting.seconds
    yield FAILURES, sighting.state.failures
    yield PROBES, sighting.probes
    yield WORKED, sighting.worked_timestamp
    yield SEEN, sighting.timestamp
    if sighting.deep is not None:
        yield DEEP_SUCCESS, sighting.deep.completion is Completion.DONE
        yield DEEP_SECONDS, sighting.deep.seconds
        yield DEEP_TIME, sighting.deep.timestamp
        yield DEEP_FAILURES, sighting.state.deep_failures


def _of_reading(sighting: Sighting) -> Iterator[tuple[Metric, float | None]]:
    reading = sighting.reading
    yield MODELS, None if reading.models is None else len(reading.models)
    yield RUNNING, reading.running
    yield WAITING, reading.waiting
    yield KV_USAGE, reading.kv_usage
    yield GENERATED, reading.generated_tokens
    yield PROMPT, reading.prompt_tokens
    yield PREEMPTIONS, reading.preemptions
    yield ERRORS, reading.errors
    yield ABORTS, reading.aborts
    yield REJECTIONS, reading.rejections
    yield BACKENDS, reading.backends
    yield HEALTHY_BACKENDS, reading.healthy_backends
    yield WEIGHTS, version_number(reading.weight_version)
    yield WEIGHTS_TIME, sighting.version_timestamp


def version_number(version: str | None) -> float | None:
    """The number that the name of a version ends in, as in `12`, `v12` or `step_000012`.

    None for one without a number, such as SGLang's `default`.
    """
    match = None if version is None else _NUMBER_AT_END.search(version[-200:])
    return None if match is None else float(match[1])
