from __future__ import annotations

from dataclasses import replace

import pytest

from trainwarden_exporter.inference import metrics
from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.engine_stats import Completion, EngineStats
from trainwarden_exporter.inference.health_model import HealthReason, HealthState
from trainwarden_exporter.inference.metrics import server_samples, version_number
from trainwarden_exporter.inference.target import CompletionResult, ServerHealth, ServerTarget
from trainwarden_exporter.scrape.collector import Metric

CONFIG = ServerConfig.model_validate(
    {"name": "a", "engine": "vllm", "url": "http://server:1", "worker": "w"}
)
TARGET = ServerTarget("grpo", "a", "vllm", CONFIG.url, CONFIG)
SIGHTING = ServerHealth(
    HealthState(reason=HealthReason.OK), up=True, timestamp=20.0, reason_timestamp=10.0
)


def shown(health: ServerHealth | None) -> dict[str, float]:
    """Returns the samples without additional labels, by name without prefix."""
    return {
        metric.name.removeprefix("trainwarden_inference_"): value
        for metric, labels, value in server_samples(TARGET, health)
        if len(labels) == 3
    }


def away(
    target: ServerTarget, health: ServerHealth | None, shown: Metric = metrics.NOT_READY_SINCE
) -> list[tuple[tuple[str, ...], float]]:
    """Returns a series that exists only while the server is not ready."""
    return [
        (labels, value)
        for metric, labels, value in server_samples(target, health)
        if metric is shown
    ]


def test_a_server_before_its_first_probe_has_only_configured_values() -> None:
    assert shown(None) == {"start_grace_seconds": 600, "pause_limit_seconds": 600}
    labels = [
        labels for metric, labels, _ in server_samples(TARGET, None) if metric is metrics.INFO
    ]
    assert labels == [("grpo", "a", "vllm", "w", "inference")]


def test_unknown_values_are_absent() -> None:
    assert shown(SIGHTING).keys() == {
        *("start_grace_seconds", "pause_limit_seconds", "up", "state_timestamp_seconds"),
        *("consecutive_failures", "probes_total", "seen_timestamp_seconds"),
    }


def test_a_server_without_a_reason_shows_none() -> None:
    unknown = replace(SIGHTING, state=HealthState(failures=1), up=None)
    assert not {"up", "state_timestamp_seconds"} & shown(unknown).keys()
    assert metrics.REASON not in {metric for metric, _, _ in server_samples(TARGET, unknown)}


def test_one_reason_is_1_and_all_others_0() -> None:
    reasons = {
        labels[3]: value
        for metric, labels, value in server_samples(TARGET, SIGHTING)
        if metric is metrics.REASON
    }
    assert reasons.pop("ok") == 1
    assert set(reasons.values()) == {0}
    assert {"hung", "refused", "timeout", "status", "engine_dead", "starting"} <= reasons.keys()
    assert {"paused", "sleeping", "updating_weights", "unreachable"} <= reasons.keys()


@pytest.mark.parametrize("reason", sorted(set(HealthReason) - {HealthReason.OK, HealthReason.BUSY}))
def test_a_server_that_is_not_ok_is_away_since_then_and_whose_it_is_is_reported(
    reason: HealthReason,
) -> None:
    health = replace(SIGHTING, state=HealthState(reason=reason), reason_timestamp=15.0)
    assert away(TARGET, health) == [(("grpo", "a", "vllm", "w", "inference", reason), 15)]


def test_a_ready_server_has_no_time_of_not_ready() -> None:
    assert away(TARGET, SIGHTING) == away(TARGET, SIGHTING, metrics.NOT_READY_LIMIT) == []


def test_a_busy_server_is_ready_and_beyond_its_limit_does_not_answer() -> None:
    busy = replace(SIGHTING, state=HealthState(reason=HealthReason.BUSY), reason_timestamp=15.0)
    assert away(TARGET, busy) == []
    overdue = replace(busy, state=HealthState(reason=HealthReason.BUSY, overdue=True))
    assert away(TARGET, overdue) == [(("grpo", "a", "vllm", "w", "inference", "timeout"), 15)]


def test_how_long_a_server_may_be_away_is_reported_where_it_may() -> None:
    config = CONFIG.model_copy(update={"start_grace": 120.0, "pause_limit": 60.0})
    found = {
        labels[5]: value
        for reason in HealthReason
        for labels, value in away(
            replace(TARGET, config=config),
            replace(SIGHTING, state=HealthState(reason=reason)),
            metrics.NOT_READY_LIMIT,
        )
    }
    assert found == {"starting": 120, "paused": 60, "sleeping": 60, "updating_weights": 60}


def test_the_worker_label_of_a_server_without_a_worker_is_empty() -> None:
    config = CONFIG.model_copy(update={"worker": None, "role": "judge"})
    health = replace(SIGHTING, state=HealthState(reason=HealthReason.HUNG))
    found = away(replace(TARGET, config=config), health)
    assert found == [(("grpo", "a", "vllm", "", "judge", "hung"), 10)]


def test_an_unknown_server_has_no_time_of_not_ready() -> None:
    assert away(TARGET, None) == away(TARGET, None, metrics.NOT_READY_LIMIT) == []
    assert away(TARGET, replace(SIGHTING, state=HealthState(failures=1), up=None)) == []


def test_all_statistics_are_shown() -> None:
    stats = EngineStats(
        running=1, waiting=2, kv_usage=0.5, generated_tokens=3, models=(), weight_version="v7"
    )
    deep = CompletionResult(Completion.FAILED, 20.0, 5.0)
    found = shown(replace(SIGHTING, stats=stats, last_completion=deep, version_timestamp=4.0))
    assert found["running_requests"] == 1
    assert found["generated_tokens_total"] == 3
    assert found["models"] == 0
    assert found["weight_version"] == 7
    assert found["deep_probe_success"] == 0


@pytest.mark.parametrize(
    ("version", "number"),
    [
        *((None, None), ("default", None), ("", None), ("12", 12), ("v12", 12)),
        *(
            ("step_000012", 12),
            ("1.5", 5),
            ("epoch3-final", 3),
            ("-4", 4),
            ("9" * 400, float("9" * 15)),
        ),
    ],
)
def test_the_number_of_a_version(version: str | None, number: float | None) -> None:
    assert version_number(version) == number


def test_every_metric_is_of_this_collector_and_declared_once() -> None:
    names = [metric.name for metric in metrics.METRICS]
    assert len(names) == len(set(names))
    assert all(name.startswith("trainwarden_inference_") for name in names)
    assert all(metric.help.endswith(".") for metric in metrics.METRICS)
