"""What an alert is about can be looked at: a panel shows what its rule rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser as promql
import pytest

from boards import BOARDS
from boards.queries import promql as as_grafana_gets_it
from labelling import groups, names_of, selectors
from previewing.asking import Window, filled

WORDS = Window(0, 3600).words


def metrics_of(expression: str) -> set[str]:
    return {name for one in selectors(promql.parse(expression)) for name in names_of(one)}


@pytest.fixture(scope="module")
def recorded() -> Mapping[str, set[str]]:
    """The recorded metrics, each with the metrics that it is computed from."""
    found: dict[str, set[str]] = {}
    for group in groups("recording"):
        for rule in group["rules"]:
            named = metrics_of(rule["expr"])
            found[rule["record"]] = {one for name in named for one in found.get(name, {name})}
    return found


def shown() -> Iterator[str]:
    for board in BOARDS:
        values = {variable.name: "x" for variable in board.variables} | WORDS
        for panel in board.panels:
            for query in panel.queries:
                yield from metrics_of(filled(as_grafana_gets_it(query.text), values))


def test_what_every_alert_rests_on_is_on_a_board(
    alerts: list[dict[str, Any]], recorded: Mapping[str, set[str]]
) -> None:
    panels = {one for name in shown() for one in (name, *recorded.get(name, ()))}
    for alert in alerts:
        named = metrics_of(alert["expr"])
        rests_on = {one for name in named for one in (name, *recorded.get(name, ()))}
        # It always fires.
        assert rests_on & panels or alert["alert"] == "TrainingWatchdog", alert["alert"]
