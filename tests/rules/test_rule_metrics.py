"""Rules and runbooks name only metrics and labels that the two programs declare, or rules record.

A rule about a metric that nobody exports is valid, and silent for ever.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest

from labelling import TARGET, Labels, MismatchError, declared, labels_of

Alerts = list[dict[str, Any]]

METRIC_NAME = re.compile(r"\b(?:[a-z_]+:)?trainwarden_[a-z0-9_]+(?::[a-z0-9_]+)?")
QUERY_BLOCK = re.compile(r"^```promql\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def known() -> dict[str, Labels]:
    """The labels of every metric there is."""
    return declared()


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("trainwarden_worker_rss_bytes > 1", "nobody declares"),
        ('up{worker="a"} == 0', "no label"),
        ("trainwarden_worker_processes < trainwarden_host_cpus", "never match"),
        ("trainwarden_worker_processes and on (gpu) up", "matched on"),
        ("sum by (gpu) (trainwarden_worker_processes) > 1", "grouped by"),
        ("trainwarden_worker_processes * on (run) group_left (gpu) up", "matched on"),
        ("trainwarden_worker_processes * on (job) group_left (gpu) up", "takes"),
    ],
)
def test_a_rule_that_can_never_fire_is_found(
    expression: str, fault: str, known: dict[str, Labels]
) -> None:
    with pytest.raises(MismatchError, match=fault):
        labels_of(promql.parse(expression), known)


def test_every_expression_rests_on_declared_metrics_and_labels(
    alerts: Alerts, known: dict[str, Labels]
) -> None:
    for alert in alerts:
        labels_of(promql.parse(alert["expr"]), known)


def test_rules_match_where_targets_have_labels_of_their_own() -> None:
    """A cluster, a namespace: they are on what is scraped, and not on what is recorded of a run."""
    known = declared("cluster", "namespace")
    assert "cluster" in known["trainwarden_training_step"]
    assert "cluster" not in known["run:trainwarden_training_stall:ratio"]
    with pytest.raises(MismatchError, match="sides never match"):
        labels_of(
            promql.parse("run:trainwarden_training_stall:ratio > trainwarden_training_step"), known
        )


def test_every_recorded_series_is_named_for_its_labels_and_needed(
    project: Path, alerts: Alerts, recordings: Alerts, known: dict[str, Labels]
) -> None:
    """By another rule or by a board."""
    needing = " ".join(rule["expr"] for rule in (*alerts, *recordings))
    needing += " ".join(
        file.read_text() for file in (project / "grafana" / "dashboards").glob("*.json")
    )
    for rule in recordings:
        level, metric, operation = rule["record"].split(":")
        assert known[rule["record"]] == TARGET | set(level.split("_")), rule["record"]
        assert metric.startswith("trainwarden_")
        assert operation
        assert rule["record"] in needing, rule["record"]


def test_every_label_in_an_annotation_is_on_the_alert(
    alerts: Alerts, known: dict[str, Labels]
) -> None:
    for alert in alerts:
        carried = (labels_of(promql.parse(alert["expr"]), known) or set()) | set(alert["labels"])
        for text in alert["annotations"].values():
            assert set(re.findall(r"\$labels\.(\w+)", text)) <= carried, alert["alert"]


def test_every_metric_asked_for_in_an_annotation_is_declared(
    alerts: Alerts, known: dict[str, Labels]
) -> None:
    asked = {
        name
        for alert in alerts
        for text in alert["annotations"].values()
        for name in METRIC_NAME.findall(text)
    }
    assert asked
    assert asked <= set(known)


def test_worker_alerts_carry_what_alertmanager_groups_and_mutes_by(
    alerts: Alerts, known: dict[str, Labels]
) -> None:
    for alert in alerts:
        if alert["alert"].startswith("TrainingWorker"):
            carried = labels_of(promql.parse(alert["expr"]), known)
            assert carried == TARGET | {"run", "worker", "role"}, alert["alert"]


def test_the_alerts_that_a_playbook_answers_carry_what_it_goes_by(
    alerts: Alerts, known: dict[str, Labels]
) -> None:
    needed = {
        "restart_inference": {"run", "server", "worker", "role"},
        "restart_braking_worker": {"run", "worker"},
        "restart_stalled_run": {"run"},
    }
    for alert in alerts:
        if (playbook := alert["labels"].get("remediation")) in needed:
            carried = labels_of(promql.parse(alert["expr"]), known) or frozenset()
            assert carried >= TARGET | needed[playbook], alert["alert"]


def test_gpu_alerts_carry_what_alertmanager_mutes_by(
    alerts: Alerts, known: dict[str, Labels]
) -> None:
    for alert in alerts:
        if alert["alert"].startswith("TrainingGpu"):
            carried = labels_of(promql.parse(alert["expr"]), known) or frozenset()
            device = {"gpu", "uuid"} if alert["alert"] != "TrainingGpuDriverFailing" else set()
            assert carried >= TARGET | device, alert["alert"]


def test_every_series_in_a_promtool_test_is_declared(rule_tests: Alerts) -> None:
    known = declared("cluster")
    for test in rule_tests:
        for series in test.get("input_series", ()):
            labels_of(promql.parse(series["series"]), known)


def test_every_query_in_a_runbook_rests_on_declared_metrics_and_labels(
    project: Path, known: dict[str, Labels]
) -> None:
    found = 0
    for page in sorted((project / "docs" / "runbooks").glob("*.md")):
        text = page.read_text()
        for block in QUERY_BLOCK.findall(text):
            for query in block.strip().split("\n"):
                labels_of(promql.parse(query), known)
                found += 1
        assert set(METRIC_NAME.findall(text)) <= set(known), page.name
    assert found


def test_every_metric_named_in_a_page_an_example_or_a_comment_is_declared(
    project: Path, known: dict[str, Labels]
) -> None:
    pages = [project / "README.md", *(project / "docs").glob("*.md")]
    pages += [*(project / "examples").rglob("*.yml"), *(project / "deploy").rglob("*.yml")]
    pages += [*(project / "rules").rglob("*.yml")]
    for page in pages:
        named = {
            re.sub(r"_(bucket|sum|count)$", "", name)
            for name in METRIC_NAME.findall(page.read_text())
        }
        unknown = {name for name in named if name not in known}
        assert not unknown, (page.name, unknown)
