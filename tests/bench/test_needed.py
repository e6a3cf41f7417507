"""Which rules are left out where nobody can see it."""

from __future__ import annotations

from typing import Any

import pytest

from verdicts.needed import needed


def left(*rules: dict[str, Any], asked: str = "") -> list[str]:
    """The names of the rules that are needed over two series of the metric `seen`."""
    series = ['seen{run="a"}', "seen"]
    (group,) = needed([{"name": "g", "rules": rules}], series, asked)
    return [rule.get("alert") or rule["record"] for rule in group["rules"]]


@pytest.mark.parametrize(
    "expr",
    [
        "sum by (run) (rate(seen[1m])) > 0",
        "gone or seen",
        "seen or gone",
        "seen unless gone",
        "absent(gone)",
        "absent_over_time(gone[1m])",
        "vector(1)",
        "time() - seen > 3",
        "clamp_max(seen, scalar(gone))",
        "max_over_time((seen > 0)[5m:])",
        '{__name__=~"seen|gone"}',
        "ALERTS",
    ],
)
def test_what_can_have_a_value_is_needed(expr: str) -> None:
    assert left({"alert": "A", "expr": expr}) == ["A"]


@pytest.mark.parametrize(
    "expr",
    [
        "gone",
        "-gone",
        "count(gone) > 0",
        "seen and gone",
        "gone and seen",
        "gone unless seen",
        "seen * on (run) gone",
        "gone or (seen and gone)",
        "time() - gone > 3",
        "clamp_max(gone, 3)",
        "max_over_time((gone > 0)[5m:])",
        'label_replace(gone, "a", "b", "c", "d")',
    ],
)
def test_what_can_have_none_is_not(expr: str) -> None:
    assert left({"alert": "A", "expr": expr}) == []


def test_what_records_is_needed_where_it_is_read() -> None:
    records = [
        {"record": "run:first:sum", "expr": "sum(seen)"},
        {"record": "run:second:sum", "expr": "run:first:sum"},
        {"record": "run:empty:sum", "expr": "gone and run:second:sum"},
    ]
    assert left(*records) == []
    assert left(*records, asked="run:second:sum > 3") == ["run:first:sum", "run:second:sum"]
    assert left(*records, asked="run:empty:sum") == []
    alert = {"alert": "A", "expr": "run:first:sum"}
    assert left(*records, alert) == ["run:first:sum", "A"]
    telling = {"alert": "A", "expr": "seen", "annotations": {"a": '{{ query "run:first:sum" }}'}}
    assert left(*records, telling) == ["run:first:sum", "A"]
    assert left(*records, {"alert": "A", "expr": "run:empty:sum"}) == []
