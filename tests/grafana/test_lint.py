"""What Grafana's dashboard-linter asks of a dashboard, and a little more, in its rules' order.

The linter is not to be had as a package here; its rules are those of
https://github.com/grafana/dashboard-linter/tree/main/docs. Not asked for: `template-job` and
`target-job`, as the shipped rules fix the names of the jobs and all metrics have our prefix, and
the two about LogQL. Those about queries are in test_queries.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from grafana_foundation_sdk.models import units

from boards import BOARDS
from boards.variables import ANY
from trainwarden.commands import COMMANDS
from trainwarden.commands.forwarded import FORWARDED

Model = Mapping[str, Any]
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
ONE_AT_A_TIME = ("trainwarden-run", "run")
"""The first board is about one run."""
KNOWN_UNITS = {value for value in vars(units).values() if isinstance(value, str)}


MOST_PANELS = 120
"""Of all boards: panels without a reader hide the others."""


def panels(models: Mapping[str, Model]) -> Iterator[tuple[str, Model]]:
    """The panels with queries."""
    for model in models.values():
        for panel in model["panels"]:
            if panel["type"] not in ("row", "text"):
                yield f"{model['uid']}: {panel['title']}", panel


def variables(model: Model) -> dict[str, Model]:
    return {variable["name"]: variable for variable in model["templating"]["list"]}


@pytest.fixture(params=[board.uid for board in BOARDS])
def model(models: Mapping[str, Model], request: pytest.FixtureRequest) -> Model:
    return models[request.param]


def test_template_datasource(model: Model) -> None:
    variable = model["templating"]["list"][0]
    assert (variable["name"], variable["label"]) == ("datasource", "Data source")
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")


def test_template_instance(model: Model) -> None:
    instance = variables(model)["instance"]
    assert (instance["label"], instance["type"]) == ("Instance", "query")
    assert instance["datasource"] == DATASOURCE
    assert instance["multi"]
    assert instance["includeAll"]
    assert instance["allValue"] == ".+"


def test_template_on_time_change_reload(model: Model) -> None:
    assert all(each["refresh"] == 2 for each in variables(model).values() if "refresh" in each)


def test_uneditable_dashboard(model: Model) -> None:
    assert model["editable"] is False


def test_panel_datasource(models: Mapping[str, Model]) -> None:
    for where, panel in panels(models):
        assert panel["datasource"] == DATASOURCE, where
        assert all(target["datasource"] == DATASOURCE for target in panel["targets"]), where
    for each in models.values():
        for mark in each["annotations"]["list"]:
            assert mark["datasource"] == DATASOURCE, each["uid"]


def test_panel_title_description(models: Mapping[str, Model]) -> None:
    for where, panel in panels(models):
        assert panel["title"], where
        assert len(panel["description"]) <= 350, where


def test_every_description_says_what_good_looks_like(models: Mapping[str, Model]) -> None:
    for where, panel in panels(models):
        assert "Good: " in panel["description"] or "Good, " in panel["description"], where


def test_panel_units(models: Mapping[str, Model]) -> None:
    for where, panel in panels(models):
        assert panel["fieldConfig"]["defaults"]["unit"] in KNOWN_UNITS, where
        for override in panel["fieldConfig"]["overrides"]:
            for one in override["properties"]:
                assert one["id"] != "unit" or one["value"] in KNOWN_UNITS, where


def test_panel_no_targets(models: Mapping[str, Model]) -> None:
    for where, panel in panels(models):
        assert panel["targets"], where
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters), where
        assert all(target["expr"] for target in panel["targets"]), where


def test_every_panel_says_something_when_it_is_empty(models: Mapping[str, Model]) -> None:
    for where, panel in panels(models):
        text = panel["fieldConfig"]["defaults"]["noValue"]
        assert text, where
        # Large letters, little room.
        assert panel["type"] != "stat" or len(text) <= 16, where


def test_numbers_of_a_glance_are_the_newest_there_are(models: Mapping[str, Model]) -> None:
    for where, panel in panels(models):
        if panel["type"] in ("stat", "bargauge"):
            assert panel["options"]["reduceOptions"]["calcs"] == ["lastNotNull"], where


def test_only_kinds_of_panels_that_every_grafana_from_10_on_has(
    models: Mapping[str, Model],
) -> None:
    assert {panel["type"] for _, panel in panels(models)} == {
        *("stat", "timeseries", "state-timeline", "bargauge", "table"),
    }


def test_a_timeline_has_no_colours_by_threshold(models: Mapping[str, Model]) -> None:
    """Grafana would show merged values by their threshold: one state, without its word."""
    found = [panel for _, panel in panels(models) if panel["type"] == "state-timeline"]
    assert found
    for panel in found:
        colour = panel["fieldConfig"]["defaults"]["color"]
        assert colour["mode"] == "fixed", panel["title"]
        assert panel["fieldConfig"]["defaults"]["mappings"], panel["title"]


def test_the_first_board_has_as_many_panels_as_one_reads(models: Mapping[str, Model]) -> None:
    shown = [panel for panel in models["trainwarden-run"]["panels"] if panel["type"] != "row"]
    assert [panel["title"] for panel in shown] == [
        *("Verdict", "Firing alerts", "Remediator", "Progress", "Ends"),
        *("Time without progress, of its limit", "Last checkpoint", "Steps per hour"),
        *("Loss and reward", "Phase, workers and servers", "Actions, by worker", "GPUs busy"),
        *("Nearest to its limit", "What you can do"),
    ]


def test_all_boards_together_have_as_many_panels_as_someone_looks_at(
    models: Mapping[str, Model],
) -> None:
    shown = [p for model in models.values() for p in model["panels"] if p["type"] != "row"]
    assert len(shown) <= MOST_PANELS


def test_no_query_is_asked_twice(models: Mapping[str, Model]) -> None:
    """Neither of now, nor of the same time."""
    asked: dict[tuple[str, bool], str] = {}
    for where, panel in panels(models):
        for target in panel["targets"]:
            query = " ".join(target["expr"].split()), bool(target.get("instant"))
            other = asked.setdefault(query, f"{where} {target['refId']}")
            assert other == f"{where} {target['refId']}", query


def test_the_words_of_the_first_board_are_commands_that_there_are(
    models: Mapping[str, Model],
) -> None:
    (words,) = [p for p in models["trainwarden-run"]["panels"] if p["type"] == "text"]
    content = words["options"]["content"]
    commands = {command.split()[1] for command in re.findall(r"`(trainwarden [^`]+)`", content)}
    assert {"hold", "resume", "status", "report"} <= commands <= {*COMMANDS, *FORWARDED}
    assert {*re.findall(r"\$(\w+)", content)} <= {*variables(models["trainwarden-run"])}


def test_no_subquery_has_more_evaluations_than_a_panel_has_points(
    models: Mapping[str, Model],
) -> None:
    for where, panel in panels(models):
        for target in panel["targets"]:
            for window, step in re.findall(r"\[([^\]:]+):([^\]]*)\]", target["expr"]):
                assert (window, step) == ("$__range", "$__interval"), where


def test_a_uid_and_a_title_are_those_of_one_board(models: Mapping[str, Model]) -> None:
    assert {model["uid"] for model in models.values()} == {board.uid for board in BOARDS}
    assert len({model["title"] for model in models.values()}) == len(BOARDS)


def test_what_is_chosen_for_many_may_be_all(model: Model) -> None:
    for name, variable in variables(model).items():
        if (model["uid"], name) == ONE_AT_A_TIME:
            assert not variable["multi"]
            assert not variable["includeAll"]
        elif variable["type"] == "query":
            assert variable["multi"], name
            assert variable["includeAll"], name
            assert variable["current"]["value"] == "$__all", name
            # A hidden one means the options that follow from what is chosen, not everything.
            assert variable.get("allValue") == (None if variable.get("hide") == 2 else ANY), name
