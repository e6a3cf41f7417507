"""What makes a rule silent, wrong or noisy without being invalid, looked for in every expression.

After pint's checks (https://cloudflare.github.io/pint/checks); where pint asks a Prometheus, this
asks the declarations of the two programs. What promtool finds is in test_rules.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import promql_parser as promql
import pytest

from labelling import groups, names_of, nodes, own_metrics, selectors
from runfolder import KEEP_HISTORY

Alerts = list[dict[str, Any]]
Above = tuple[Any, ...]

SCRAPE = timedelta(seconds=5)
OF_COUNTERS = {"rate", "irate", "increase", "resets"}
OF_GAUGES = {"deriv", "delta", "idelta", "predict_linear", "avg_over_time", "min_over_time"}
OF_EITHER = {"changes", "count_over_time", "last_over_time"}
OVER_TIME = OF_COUNTERS | OF_GAUGES | OF_EITHER | {"max_over_time", "absent_over_time"}
SLOPES = {"rate", "irate", "increase", "resets", "deriv", "changes"}
COMPARISONS = {"==", "!=", ">", "<", ">=", "<="}
LEVELS = {
    "trainwarden_worker_restarts_total": "the exporter is younger than the window",
    "trainwarden_run_time_seconds_total": "copied once a minute, and asked how the copy grows",
    "trainwarden_inference_generated_tokens_total": "asked whether, and how often, it was scraped",
}
"""Counters that are also taken as they are, and why."""
NEVER_ZERO = {
    "trainwarden_training_stall_limit_seconds": "a limit",
    "trainwarden_gpu_memory_total_bytes": "a device has memory",
    "run_role_name_gpu_uuid:trainwarden_gpu_clock_hertz:q90_10m": "a busy device has a clock",
    "run_role_name_gpu_uuid:trainwarden_gpu_pcie_link:product10m": "and a lane",
    "trainwarden_disk_inodes": "one without a limit has no such series",
}
"""What is divided by as it is, and why it may be."""
BARE = {("*", "up"), ("*", "ALERTS")} | {
    (f"run:trainwarden_run_{state}:group", name)
    for state in ("absent", "removed")
    for name in ("trainwarden_training_finished", "trainwarden_collector_success")
}
"""Metrics that are also asked for as they are at this moment, and where: whether a target is known
at all; the state of an alert itself, which no scrape brings; whether the newest scrape could have
had a run, which a lost one does not change."""


def expressions() -> Iterator[tuple[str, Any]]:
    """Every alert and recording, by name, parsed."""
    for kind in ("alerts", "recording"):
        for group in groups(kind):
            for rule in group["rules"]:
                yield rule.get("alert") or rule["record"], promql.parse(rule["expr"])


def parts(kind: type) -> Iterator[tuple[str, Any, Above]]:
    """Every part of that kind in any expression, with what it is in."""
    for name, expression in expressions():
        for node, above in nodes(expression):
            if isinstance(node, kind):
                yield name, node, above


def arms(node: Any) -> Iterator[Any]:
    """What an expression says, taken apart at every `or` that stands outside."""
    match node:
        case promql.ParenExpr():
            yield from arms(node.expr)
        case promql.BinaryExpr() if str(node.op) == "or":
            yield from arms(node.lhs)
            yield from arms(node.rhs)
        case _:
            yield node


def calls(above: Above) -> list[str]:
    return [node.func.name for node in above if isinstance(node, promql.Call)]


def seconds(text: str) -> float:
    return float(promql.parse_duration(text).total_seconds())


def test_no_alert_fires_always_but_the_heartbeat(alerts: Alerts) -> None:
    for alert in alerts:
        if alert["alert"] == "TrainingWatchdog":
            continue
        for arm in arms(promql.parse(alert["expr"])):
            asks = [
                node
                for node, _ in nodes(arm)
                if (isinstance(node, promql.BinaryExpr) and str(node.op) in COMPARISONS)
                or (isinstance(node, promql.Call) and node.func.name.startswith("absent"))
            ]
            assert asks, (alert["alert"], str(arm))


def test_counters_are_asked_how_they_grow_and_gauges_what_they_are() -> None:
    types = {name: metric.type for name, metric in own_metrics().items()}
    for name, selector, above in parts(promql.VectorSelector):
        for metric in names_of(selector):
            over = {*calls(above)} & OVER_TIME
            if types.get(metric) == "counter":
                exempt = metric in LEVELS and len(over) == 1 and over < OF_EITHER
                assert exempt or over & (OF_COUNTERS | {"changes"}), (name, metric)
            elif metric in types:
                assert not over & OF_COUNTERS, (name, metric)


def test_a_lost_scrape_neither_fires_nor_clears() -> None:
    for name, selector, above in parts(promql.VectorSelector):
        if ":" in (selector.name or ""):
            continue  # recorded, over a window
        ranged = bool(above) and isinstance(above[-1], promql.MatrixSelector)
        bare = {("*", selector.name), (name, selector.name)} & BARE
        assert ranged or bare, (name, str(selector))


def test_a_window_holds_several_scrapes_and_lies_within_what_is_kept() -> None:
    for name, window, above in parts(promql.MatrixSelector):
        function = next(node.func.name for node in reversed(above) if isinstance(node, promql.Call))
        least = 12 if function in SLOPES else 2
        assert window.range >= least * SCRAPE, (name, str(window))
        back = window.vector_selector.offset or timedelta()
        assert (window.range + back).total_seconds() <= seconds(KEEP_HISTORY), (name, str(window))


def test_what_two_samples_decide_is_asked_for_that_many(alerts: Alerts) -> None:
    """Windows so short that one odd sample between lost scrapes would be all there is."""
    for alert in alerts:
        if "remediation" not in alert["labels"]:
            continue
        short = [
            node
            for node, above in nodes(promql.parse(alert["expr"]))
            if isinstance(node, promql.MatrixSelector)
            and node.range <= timedelta(seconds=20)
            and {*calls(above)} & {"min_over_time", "max_over_time"}
        ]
        assert not short or "count_over_time" in alert["expr"], alert["alert"]


def test_the_page_lists_the_alerts_that_rare_scrapes_silence(alerts: Alerts) -> None:
    (seldom,) = (alert for alert in alerts if alert["alert"] == "TrainingScrapedTooSeldom")
    counted = {
        alert["alert"]
        for alert in alerts
        if "remediation" in alert["labels"] and "count_over_time" in alert["expr"]
    }
    reported = set(re.findall(r"Training\w+", seldom["annotations"]["description"]))
    assert reported == counted


def test_what_is_divided_by_is_never_zero() -> None:
    as_it_is = set()
    for name, node, _ in parts(promql.BinaryExpr):
        if str(node.op) not in ("/", "%"):
            continue
        below = node.rhs
        while isinstance(below, promql.ParenExpr):
            below = below.expr
        if isinstance(below, promql.NumberLiteral):
            continue
        if isinstance(below, promql.BinaryExpr) and str(below.op) == ">":
            continue
        metrics = {metric for one in selectors(below) for metric in names_of(one)}
        assert metrics, (name, str(node))
        as_it_is |= metrics
    assert as_it_is == set(NEVER_ZERO)


def test_absence_is_asked_of_a_window() -> None:
    """Of a moment it would be true whenever Prometheus has just started."""
    for name, call, _ in parts(promql.Call):
        assert call.func.name != "absent", name
        if call.func.name == "absent_over_time":
            assert call.args[0].range >= timedelta(minutes=5), name


def test_aggregates_keep_the_host() -> None:
    for name, node, above in parts(promql.AggregateExpr):
        assert node.modifier is not None, (name, str(node))
        labels = set(node.modifier.labels)
        if node.modifier.type == promql.AggModifierType.Without:
            assert not labels & {"instance", "job"}, (name, str(node))
        else:
            assert labels >= {"instance", "job"}, (name, str(node))
        assert str(node.op) not in ("topk", "bottomk", "limitk", "count_values"), (name, above)


def test_patterns_are_needed_and_not_anchored_twice() -> None:
    for name, selector, _ in parts(promql.VectorSelector):
        for matcher in selector.matchers.matchers:
            if matcher.op in (promql.MatchOp.Re, promql.MatchOp.NotRe):
                assert re.search(r"[.|*+?\[(]", matcher.value), (name, str(selector))
                assert not re.search(r"^\^|\$$", matcher.value), (name, str(selector))


def test_what_every_target_has_is_asked_of_a_job() -> None:
    for name, selector, _ in parts(promql.VectorSelector):
        if selector.name in ("up", "process_start_time_seconds"):
            assert "job" in {matcher.name for matcher in selector.matchers.matchers}, name


def test_groups_are_evaluated_often_enough_to_leave_no_gap() -> None:
    names = []
    for kind in ("alerts", "recording"):
        for group in groups(kind):
            assert seconds(group["interval"]) in (5, 10, 15, 60), group["name"]
            names.append(group["name"])
    assert len(set(names)) == len(names)


def test_nothing_that_cannot_wait_is_evaluated_but_once_a_minute() -> None:
    minutes = [group for group in groups("alerts") if seconds(group["interval"]) == 60]
    assert minutes
    for group in minutes:
        for alert in group["rules"]:
            assert alert["labels"]["severity"] != "critical", alert["alert"]
            assert "remediation" not in alert["labels"], alert["alert"]


def test_no_two_rules_say_the_same() -> None:
    message = [str(expression) for _, expression in expressions()]
    assert len(set(message)) == len(message)


def test_labels_are_as_written(alerts: Alerts) -> None:
    """A label that changes with the value makes a new alert each time."""
    for alert in alerts:
        assert not any("{{" in value for value in alert["labels"].values()), alert["alert"]


def test_a_value_with_fractions_is_reported_as_an_operator_would(alerts: Alerts) -> None:
    fractions = re.compile(r"\b(rate|increase|deriv|avg_over_time|time)\(|[^:]/")
    for alert in alerts:
        if re.search(r"\{\{\s*\$value\s*\}\}", alert["annotations"]["description"]):
            value = next(arms(promql.parse(alert["expr"])))
            while isinstance(value, promql.BinaryExpr) and str(value.op) in {
                *COMPARISONS,
                "and",
                "unless",
            }:
                value = value.lhs
            if isinstance(value, promql.Call) and value.func.name == "round":
                continue
            assert not fractions.search(str(value)), (alert["alert"], str(value))


QUERY = re.compile(r'"((?:[^"\\]|\\.)*)"(?:\s+\$(?:labels\.)?\w+)*\s*\|\s*query')


def asked_in(alert: dict[str, Any]) -> Iterator[str]:
    """The queries in its annotations, with something for what is filled in."""
    for text in alert["annotations"].values():
        for query in QUERY.findall(text):
            filled = re.sub(r"%(\[\d+\])?q", '"x"', query.replace('\\"', '"'))
            yield filled.replace("@ %f", "@ 1.0")


def test_queries_in_annotations_are_of_this_alert_alone(alerts: Alerts) -> None:
    """By box: two boxes may have a run, or a device, of one name."""
    found = 0
    for alert in alerts:
        message = " ".join(alert["annotations"].values())
        assert message.count("| query") == len([*asked_in(alert)]), alert["alert"]
        for query in asked_in(alert):
            first = next(
                node
                for node, _ in nodes(promql.parse(query))
                if isinstance(node, promql.VectorSelector)
            )
            assert "instance" in {m.name for m in first.matchers.matchers}, (alert["alert"], query)
            found += 1
    assert found


@pytest.mark.parametrize(
    ("lint", "expression"),
    [
        (test_counters_are_asked_how_they_grow_and_gauges_what_they_are, text)
        for text in (
            "last_over_time(trainwarden_memory_oom_kills_total[1m]) > 0",
            "increase(trainwarden_worker_processes[5m]) > 0",
        )
    ]
    + [
        (test_a_lost_scrape_neither_fires_nor_clears, "trainwarden_worker_processes == 0"),
        (
            test_a_window_holds_several_scrapes_and_lies_within_what_is_kept,
            "increase(trainwarden_memory_oom_kills_total[30s]) > 0",
        ),
        (
            test_a_window_holds_several_scrapes_and_lies_within_what_is_kept,
            "last_over_time(trainwarden_host_boot_timestamp_seconds[1d] offset 1w) > 0",
        ),
        (
            test_what_is_divided_by_is_never_zero,
            "1 / last_over_time(trainwarden_worker_memory_bytes[1m]) > 1",
        ),
        (test_absence_is_asked_of_a_window, 'absent(up{job="trainwarden-exporter"})'),
        (test_aggregates_keep_the_host, "sum by (run) (run:trainwarden_training_stall:ratio) > 1"),
        (
            test_patterns_are_needed_and_not_anchored_twice,
            'last_over_time(trainwarden_training_phase{phase=~"saving"}[1m]) == 1',
        ),
        (test_what_every_target_has_is_asked_of_a_job, "max_over_time(up[1m]) == 0"),
    ],
)
def test_what_is_wrong_is_found(
    lint: Callable[[], None], expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = {"name": "wrong", "interval": "5s", "rules": [{"alert": "Wrong", "expr": expression}]}
    monkeypatch.setitem(globals(), "groups", lambda kind: [group] if kind == "alerts" else [])
    with pytest.raises(AssertionError):
        lint()
