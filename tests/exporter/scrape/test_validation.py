"""What a collector returns is checked against what it has declared."""

from __future__ import annotations

from typing import Any

import pytest

from trainwarden_exporter.scrape.collector import Family, Metric
from trainwarden_exporter.scrape.validation import validated

APPLES = Metric("apples", "gauge", "Apples seen.")
PEARS = Metric("pears_total", "counter", "Pears seen.", ("colour", "size"))


def family(metric: Metric, *samples: tuple[list[Any], Any]) -> Family:
    made = metric.family()
    for labels, value in samples:
        made.add_metric(labels, value)
    return made


def test_what_is_declared_passes() -> None:
    good = (
        family(APPLES, ([], float("nan"))),
        family(PEARS, (["grün", "5"], 1), (["grün", "6"], 2.5)),
    )

    assert validated(iter(good), (APPLES, PEARS)) == good


@pytest.mark.parametrize(
    "bad",
    [
        family(Metric("plums", "gauge", "Plums."), ([], 1)),
        family(Metric("apples_total", "counter", "Apples."), ([], 1)),
        family(Metric("pears_total", "gauge", "Pears.", ("colour", "size")), (["red", "5"], 1)),
        family(Metric("pears_total", "counter", "Pears.", ("colour", "taste")), (["red", "5"], 1)),
        family(PEARS, (["red"], 1)),
        family(PEARS, (["red", "5", "ripe"], 1)),
        family(PEARS, (["red", "5"], 1), (["red"], 1), (["red", "6", "ripe"], 1)),
        family(PEARS, (["red", 5], 1)),
        family(PEARS, (["red", None], 1)),
        family(PEARS, (["caf\udce9", "5"], 1)),
        family(PEARS, (["red", "5"], 1), (["red", "5"], 1)),
        family(APPLES, ([], None)),
        family(APPLES, ([], "7")),
        family(APPLES, ([], 1j)),
        family(APPLES, ([], 10**400)),
    ],
    ids=lambda bad: repr(bad.samples)[:60],
)
def test_what_is_not_as_declared_is_refused(bad: Family) -> None:
    with pytest.raises(TypeError, match=bad.name):
        validated([bad], (APPLES, PEARS))


def test_a_family_returned_twice_is_refused() -> None:
    with pytest.raises(TypeError, match="twice"):
        validated([family(APPLES, ([], 1)), family(APPLES, ([], 1))], (APPLES,))
