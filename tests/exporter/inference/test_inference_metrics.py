from __future__ import annotations

from dataclasses import replace

import pytest

from trainwarden_exporter.collector import Metric
from trainwarden_exporter.inference import metrics
from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.metrics import server_samples, version_number
from trainwarden_exporter.inference.reading import Completion, Reading
from trainwarden_exporter.inference.target import DeepSighting, Sighting, Target
from trainwarden_exporter.inference.verdict import Reason, State

CONFIG = ServerConfig.model_validate(
    {"name": "a", "engine": "vllm", "url": "http://server:1", "worker": "w"}
)
TARGET = Target("grpo", "a", "vllm", CONFIG.url, CONFIG)
SIGHTING = Sighting(State(reason=Reason.OK), up=True, timestamp=20.0, reason_timestamp=10.0)


def shown(sighting: Sighting | None) -> dict[str, float]:
    """The samples that have no more labels than all, by the name without its prefix."""
    return {
        metric.name.removeprefix("trainwarden_inference_"): value
        for metric, labels, value in server_samples(TARGET, sighting)
        if len(labels) == 3
    }


def away(
    target: Target, sighting: Sighting | None, shown: Metric = metrics.AWAY
) -> list[tuple[tuple[str, ...], float]]:
    """One of the series that are there only while a server is not ok."""
    return [
        (labels, value)
        for metric, labels, value in server_samples(target, sighting)
        if metric is shown
    ]


def test_of_a_server_that_was_not_asked_yet_only_what_is_configured_is_shown() -> None:
    assert shown(None) == {"start_grace_seconds": 600, "pause_limit_seconds": 600}
    labels = [
        labels for metric, labels, _ in server_samples(TARGET, None) if metric is metrics.INFO
    ]
    assert labels == [("grpo", "a", "vllm", "w", "inference")]


def test_what_is_not_known_is_absent() -> None:
    assert shown(SIGHTING).keys() == {
        *("start_grace_seconds", "pause_limit_seconds", "up", "state_timestamp_seconds"),
        *("consecutive_failures", "probes_total", "seen_timestamp_seconds"),
    }


def test_as_long_as_there_is_no_verdict_none_is_shown() -> None:
    unknown = replace(SIGHTING, state=State(failures=1), up=None)
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


@pytest.mark.parametrize("reason", sorted(set(Reason) - {Reason.OK}))
def test_a_server_that_is_not_ok_is_away_since_then_and_whose_it_is_is_told(
    reason: Reason,
) -> None:
    sighting = replace(SIGHTING, state=State(reason=reason), reason_timestamp=15.0)
    assert away(TARGET, sighting) == [(("grpo", "a", "vllm", "w", "inference", reason), 15)]


def test_a_server_that_is_ok_is_not_away() -> None:
    assert away(TARGET, SIGHTING) == away(TARGET, SIGHTING, metrics.AWAY_LIMIT) == []


def test_how_long_a_server_may_be_away_is_told_where_it_may() -> None:
    config = CONFIG.model_copy(update={"start_grace": 120.0, "pause_limit": 60.0})
    found = {
        labels[5]: value
        for reason in Reason
        for labels, value in away(
            replace(TARGET, config=config),
            replace(SIGHTING, state=State(reason=reason)),
            metrics.AWAY_LIMIT,
        )
    }
    assert found == {"starting": 120, "paused": 60, "sleeping": 60, "updating_weights": 60}


def test_of_a_server_without_a_worker_the_label_is_empty() -> None:
    config = CONFIG.model_copy(update={"worker": None, "role": "judge"})
    sighting = replace(SIGHTING, state=State(reason=Reason.HUNG))
    found = away(replace(TARGET, config=config), sighting)
    assert found == [(("grpo", "a", "vllm", "", "judge", "hung"), 10)]


def test_a_server_that_is_not_known_yet_is_not_away() -> None:
    assert away(TARGET, None) == away(TARGET, None, metrics.AWAY_LIMIT) == []
    assert away(TARGET, replace(SIGHTING, state=State(failures=1), up=None)) == []


def test_what_was_read_is_shown() -> None:
    reading = Reading(
        running=1, waiting=2, kv_usage=0.5, generated_tokens=3, models=(), weight_version="v7"
    )
    deep = DeepSighting(Completion.FAILED, 20.0, 5.0)
    found = shown(replace(SIGHTING, reading=reading, deep=deep, version_timestamp=4.0))
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
