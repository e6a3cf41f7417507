"""Rules and runbooks name only metrics and labels that the two programs declare.

A rule about a metric that nobody exports is valid, and silent for ever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest

from trainwarden_exporter.app import declared_metrics
from trainwarden_remediator.metrics import METRICS

Alerts = list[dict[str, Any]]
Labels = frozenset[str]

TARGET = frozenset({"instance", "job"})
"""What Prometheus adds to every series it scrapes."""
DECLARED: Mapping[str, Labels] = {
    metric.name: TARGET | set(metric.labels) for metric in (*declared_metrics(), *METRICS)
} | {
    "up": TARGET,
    "ALERTS": frozenset(
        {"alertname", "alertstate", "severity", "remediation", "run", "worker", "role"} | TARGET
    ),
}
SET_OPERATORS = ("and", "or", "unless")
METRIC_NAME = re.compile(r"\btrainwarden_[a-z0-9_]+")
QUERY_BLOCK = re.compile(r"^```promql\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class MismatchError(Exception):
    """An expression that cannot yield what it seems to."""


def labels_of(node: Any) -> Labels | None:
    """The labels that series of `node` can carry; None where it is no vector.

    Raises MismatchError for a metric or label nobody declares, and for sides that cannot match.
    """
    match node:
        case promql.VectorSelector():
            return _selector(node)
        case promql.MatrixSelector():
            return _selector(node.vector_selector)
        case promql.SubqueryExpr() | promql.ParenExpr() | promql.UnaryExpr():
            return labels_of(node.expr)
        case promql.AggregateExpr():
            return _aggregate(node)
        case promql.Call():
            return _call(node)
        case promql.BinaryExpr():
            return _binary(node)
        case _:
            return None


def _selector(node: promql.VectorSelector) -> Labels:
    if node.name is None or node.name not in DECLARED:
        raise MismatchError(f"nobody declares the metric {node.name}")
    declared = DECLARED[node.name]
    if unknown := {matcher.name for matcher in node.matchers.matchers} - declared:
        raise MismatchError(f"{node.name} has no label {unknown}")
    return declared


def _aggregate(node: promql.AggregateExpr) -> Labels:
    inner = labels_of(node.expr) or frozenset()
    named = frozenset(node.modifier.labels) if node.modifier else frozenset()
    if not named <= inner:
        raise MismatchError(f"grouped by {named - inner}, which {node.expr} has not")
    if node.modifier and node.modifier.type == promql.AggModifierType.Without:
        return inner - named
    return named


def _call(node: promql.Call) -> Labels | None:
    inner = [labels for argument in node.args if (labels := labels_of(argument)) is not None]
    if node.func.name == "label_replace":
        return inner[0] | {node.args[1].val}
    return inner[0] if inner else None


def _binary(node: promql.BinaryExpr) -> Labels | None:
    left, right = labels_of(node.lhs), labels_of(node.rhs)
    if left is None or right is None:
        return right if left is None else left
    operator = str(node.op)
    if operator == "or":
        return left | right
    matching = node.modifier.matching if node.modifier else None
    if matching is None:
        if left != right:
            raise MismatchError(f"sides never match, labels {left ^ right} are on one: {node}")
        return left
    named = frozenset(matching.labels)
    if not named <= left & right:
        raise MismatchError(f"matched on {named - (left & right)}, which one side has not: {node}")
    if operator in SET_OPERATORS:
        return left
    return named if matching.type == promql.LabelModifierType.Include else left - named


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("trainwarden_worker_rss_bytes > 1", "nobody declares"),
        ('up{worker="a"} == 0', "no label"),
        ("trainwarden_worker_processes < trainwarden_host_cpus", "never match"),
        ("trainwarden_worker_processes and on (gpu) up", "matched on"),
        ("sum by (gpu) (trainwarden_worker_processes) > 1", "grouped by"),
    ],
)
def test_a_rule_that_can_never_fire_is_found(expression: str, fault: str) -> None:
    with pytest.raises(MismatchError, match=fault):
        labels_of(promql.parse(expression))


def test_every_expression_rests_on_declared_metrics_and_labels(alerts: Alerts) -> None:
    for alert in alerts:
        labels_of(promql.parse(alert["expr"]))


def test_every_label_in_an_annotation_is_on_the_alert(alerts: Alerts) -> None:
    for alert in alerts:
        carried = (labels_of(promql.parse(alert["expr"])) or set()) | set(alert["labels"])
        for text in alert["annotations"].values():
            assert set(re.findall(r"\$labels\.(\w+)", text)) <= carried, alert["alert"]


def test_every_metric_asked_for_in_an_annotation_is_declared(alerts: Alerts) -> None:
    asked = {
        name
        for alert in alerts
        for text in alert["annotations"].values()
        for name in METRIC_NAME.findall(text)
    }
    assert asked
    assert asked <= set(DECLARED)


def test_worker_alerts_carry_what_alertmanager_groups_and_mutes_by(alerts: Alerts) -> None:
    for alert in alerts:
        if alert["alert"].startswith("TrainingWorker"):
            carried = labels_of(promql.parse(alert["expr"]))
            assert carried == TARGET | {"run", "worker", "role"}, alert["alert"]


def test_gpu_alerts_carry_what_alertmanager_mutes_by(alerts: Alerts) -> None:
    for alert in alerts:
        if alert["alert"].startswith("TrainingGpu"):
            carried = labels_of(promql.parse(alert["expr"])) or frozenset()
            device = {"gpu", "uuid"} if alert["alert"] != "TrainingGpuDriverFailing" else set()
            assert carried >= TARGET | device, alert["alert"]


def test_every_series_in_a_promtool_test_is_declared(rule_tests: Alerts) -> None:
    for test in rule_tests:
        for series in test.get("input_series", ()):
            labels_of(promql.parse(series["series"]))


def test_every_query_in_a_runbook_rests_on_declared_metrics_and_labels(project: Path) -> None:
    found = 0
    for page in sorted((project / "docs" / "runbooks").glob("*.md")):
        text = page.read_text()
        for block in QUERY_BLOCK.findall(text):
            for query in block.strip().split("\n"):
                labels_of(promql.parse(query))
                found += 1
        assert set(METRIC_NAME.findall(text)) <= set(DECLARED), page.name
    assert found
