"""The rules that can decide anything over some series; the rest takes most of promtool's time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import promql_parser as promql

Body = Mapping[str, Any]
"""A group of rules, as written."""
OF_ALERTS = frozenset({"ALERTS", "ALERTS_FOR_STATE"})
_OF_NOTHING = ("absent", "absent_over_time", "scalar")
"""The functions that have a value where their argument has none."""
_RECORDED = re.compile(r"\w+:[\w:]+")


def needed(groups: Sequence[Body], series: Iterable[str], asked: str = "") -> list[Body]:
    """Each of the groups, less the rules whose absence nobody can see over these series.

    That is the rules that can have no value, and the recording rules whose value is neither `asked`
    for nor read by an alert that is left.
    """
    there = OF_ALERTS | {name.partition("{")[0].strip() for name in series}
    rules = [rule for group in groups for rule in group["rules"]]
    parsed = {rule["expr"]: promql.parse(rule["expr"]) for rule in rules}
    while True:
        kept = [rule for rule in rules if _has_values(parsed[rule["expr"]], there)]
        recorded = {rule["record"] for rule in kept if "record" in rule}
        if recorded <= there:
            break
        there |= recorded
    alerts = [rule for rule in kept if "alert" in rule]
    texts = [asked, *(rule["expr"] for rule in alerts)]
    texts += (text for rule in alerts for text in rule.get("annotations", {}).values())
    read: set[str] = set()
    while new := {name for text in texts for name in _RECORDED.findall(text)} - read:
        read |= new
        texts = [rule["expr"] for rule in kept if rule.get("record") in new]
    left = {id(rule) for rule in kept if rule.get("record") in (None, *read)}
    return [
        {**group, "rules": [rule for rule in group["rules"] if id(rule) in left]}
        for group in groups
    ]


def _has_values(node: Any, there: Iterable[str]) -> bool:
    """Whether an expression can have one, over the metrics that are there."""
    match node:
        case promql.VectorSelector():
            return node.name is None or node.name in there
        case promql.MatrixSelector():
            return _has_values(node.vector_selector, there)
        case (
            promql.SubqueryExpr() | promql.ParenExpr() | promql.UnaryExpr() | promql.AggregateExpr()
        ):
            return _has_values(node.expr, there)
        case promql.Call():
            return node.func.name in _OF_NOTHING or all(
                _has_values(one, there) for one in node.args
            )
        case promql.BinaryExpr():
            left, right = (_has_values(one, there) for one in (node.lhs, node.rhs))
            if str(node.op) == "or":
                return left or right
            return left and (right or str(node.op) == "unless")
        case _:
            return True  # a number or a text
