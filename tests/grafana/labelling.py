"""Which labels the series of a PromQL expression can carry, by what is declared."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml

from trainwarden_exporter.app import declared_metrics
from trainwarden_exporter.scrape.collector import Metric
from trainwarden_remediator.telemetry.metrics import METRICS

RULES = Path(__file__).resolve().parents[2] / "rules"
Labels = frozenset[str]

TARGET = frozenset({"instance", "job"})
"""What Prometheus adds to every series it scrapes."""
FOREIGN: Mapping[str, Labels] = {
    # https://prometheus.io/docs/concepts/jobs_instances/
    "up": TARGET,
    "scrape_duration_seconds": TARGET,
    "scrape_samples_scraped": TARGET,
    # What Prometheus 2.42 and Alertmanager 0.25 show of themselves.
    "prometheus_rule_evaluation_failures_total": TARGET | {"rule_group"},
    "alertmanager_notifications_failed_total": TARGET | {"integration"},
}
"""Metrics that are not ours."""
SET_OPERATORS = ("and", "or", "unless")


class MismatchError(Exception):
    """An expression that cannot yield what it seems to."""


def own_metrics() -> dict[str, Metric]:
    """All that the two programs declare, by name."""
    return {metric.name: metric for metric in (*declared_metrics(), *METRICS)}


def groups(kind: str) -> Iterator[dict[str, Any]]:
    """Every rule group in the files of `kind`: alerts or recording."""
    for file in sorted((RULES / kind).glob("*.yml")):
        yield from yaml.safe_load(file.read_text())["groups"]


def alerting_rules() -> list[dict[str, Any]]:
    """Every alerting rule, as written."""
    return [rule for group in groups("alerts") for rule in group["rules"]]


def declared(*of_target: str) -> dict[str, Labels]:
    """The labels of every metric there is: declared, recorded, or Prometheus' own.

    `of_target`: labels that the scraping Prometheus adds to all targets. Raises MismatchError for
    a rule that cannot yield what it seems to.
    """
    target = TARGET | set(of_target)
    found = {name: target | set(metric.labels) for name, metric in own_metrics().items()}
    found |= {name: target | labels for name, labels in FOREIGN.items()}
    for group in groups("recording"):
        for rule in group["rules"]:
            found[rule["record"]] = labels_of(promql.parse(rule["expr"]), found) or frozenset()
    # an alert may rest on its own state, whose labels are among those of what it reads
    found["ALERTS"] = frozenset().union(*found.values(), {"alertname", "severity", "alertstate"})
    carried = [
        (labels_of(promql.parse(rule["expr"]), found) or frozenset()) | set(rule["labels"])
        for rule in alerting_rules()
    ]
    alert = frozenset(itertools.chain({"alertname"}, *carried))
    return found | {"ALERTS": alert | {"alertstate"}, "ALERTS_FOR_STATE": alert}


def labels_of(node: Any, known: Mapping[str, Labels]) -> Labels | None:
    """The labels that series of `node` can carry; None where it is no vector.

    Raises MismatchError for a metric or label nobody declares, and for sides that cannot match.
    """
    match node:
        case promql.VectorSelector():
            return _selector(node, known)
        case promql.MatrixSelector():
            return _selector(node.vector_selector, known)
        case promql.SubqueryExpr() | promql.ParenExpr() | promql.UnaryExpr():
            return labels_of(node.expr, known)
        case promql.AggregateExpr():
            return _aggregate(node, known)
        case promql.Call():
            return _call(node, known)
        case promql.BinaryExpr():
            return _binary(node, known)
        case _:
            return None


def nodes(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Every part of an expression, each with what it is in, from the outside in."""
    yield node, above
    inner: list[Any]
    match node:
        case promql.MatrixSelector():
            inner = [node.vector_selector]
        case (
            promql.SubqueryExpr() | promql.ParenExpr() | promql.UnaryExpr() | promql.AggregateExpr()
        ):
            inner = [node.expr]
        case promql.Call():
            inner = list(node.args)
        case promql.BinaryExpr():
            inner = [node.lhs, node.rhs]
        case _:
            inner = []
    for part in inner:
        yield from nodes(part, (*above, node))


def selectors(node: Any) -> Iterator[promql.VectorSelector]:
    """Every selector in an expression."""
    for part, _ in nodes(node):
        if isinstance(part, promql.VectorSelector):
            yield part


def names_of(node: promql.VectorSelector) -> list[str]:
    """The metrics of a selector: one, or several that a pattern of names lists."""
    if node.name is not None:
        return [node.name]
    for matcher in node.matchers.matchers:
        if matcher.name == "__name__":
            listed = re.fullmatch(r"(\w*)\(([\w|]+)\)", matcher.value)
            assert listed is not None, f"not a plain list of names: {matcher.value}"
            return [f"{listed[1]}{end}" for end in listed[2].split("|")]
    raise MismatchError(f"selector without a metric name: {node}")


def _selector(node: promql.VectorSelector, known: Mapping[str, Labels]) -> Labels:
    names = names_of(node)
    if unknown := [name for name in names if name not in known]:
        raise MismatchError(f"nobody declares the metrics {unknown}")
    carried = frozenset.intersection(*(known[name] for name in names))
    asked = {matcher.name for matcher in node.matchers.matchers} - {"__name__"}
    if not asked <= carried:
        raise MismatchError(f"{names} have no label {asked - carried}")
    return carried


def _aggregate(node: promql.AggregateExpr, known: Mapping[str, Labels]) -> Labels:
    inner = labels_of(node.expr, known) or frozenset()
    named = frozenset(node.modifier.labels) if node.modifier else frozenset()
    if not named <= inner:
        raise MismatchError(f"grouped by {named - inner}, which {node.expr} has not")
    if node.modifier and node.modifier.type == promql.AggModifierType.Without:
        return inner - named
    return named


def _call(node: promql.Call, known: Mapping[str, Labels]) -> Labels | None:
    name = node.func.name
    inner = [found for one in node.args if (found := labels_of(one, known)) is not None]
    if name == "label_join":
        joined = {argument.val for argument in node.args[3:]}
        if not joined <= inner[0]:
            raise MismatchError(f"joins {joined - inner[0]}, which {node.args[0]} has not")
    if name in ("label_replace", "label_join"):
        return inner[0] | {node.args[1].val}
    return inner[0] if inner else None


def _binary(node: promql.BinaryExpr, known: Mapping[str, Labels]) -> Labels | None:
    left, right = labels_of(node.lhs, known), labels_of(node.rhs, known)
    if left is None or right is None:
        return right if left is None else left
    operator = str(node.op)
    if operator == "or":
        return left | right
    modifier = node.modifier
    if modifier is None or modifier.matching is None:
        if left != right:
            raise MismatchError(f"sides never match, labels {left ^ right} are on one: {node}")
        return left
    named = frozenset(modifier.matching.labels)
    includes = modifier.matching.type == promql.LabelModifierType.Include
    if includes and not named <= left & right:
        raise MismatchError(f"matched on {named - (left & right)}, which one side has not: {node}")
    if not includes and left - named != right - named:
        raise MismatchError(f"sides never match, labels {left ^ right} are on one: {node}")
    if operator in SET_OPERATORS:
        return left
    taken = frozenset(modifier.group_labels or ())
    match modifier.card:
        case promql.VectorMatchCardinality.ManyToOne:
            return _widened(left, right, taken)
        case promql.VectorMatchCardinality.OneToMany:
            return _widened(right, left, taken)
    return named if includes else left - named


def _widened(many: Labels, one: Labels, taken: Labels) -> Labels:
    """The labels of the `many` side, and the labels that it takes from the `one` side."""
    if not taken <= one:
        raise MismatchError(f"takes {taken - one}, which the other side has not")
    return many | taken
