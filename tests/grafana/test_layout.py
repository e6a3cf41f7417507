"""Panels stand side by side without gaps, none over another, and keep their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from boards.board import number
from boards.layout import COLUMNS, Row, place
from boards.panels import Stat


def cells(panel: Mapping[str, Any]) -> set[tuple[int, int]]:
    position = panel["gridPos"]
    return {
        (x, y)
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    }


def test_every_cell_of_the_grid_is_of_one_panel(models: Mapping[str, Mapping[str, Any]]) -> None:
    for uid, model in models.items():
        taken: set[tuple[int, int]] = set()
        for panel in model["panels"]:
            assert not taken & cells(panel), f"{uid}: {panel['title']} is over another one"
            taken |= cells(panel)
        height = max(y for _, y in taken) + 1
        assert len(taken) == COLUMNS * height, f"{uid}: there are gaps"
        assert max(x for x, _ in taken) == COLUMNS - 1


def test_panels_are_listed_from_top_to_bottom(models: Mapping[str, Mapping[str, Any]]) -> None:
    for model in models.values():
        positions = [panel["gridPos"] for panel in model["panels"]]
        assert all((a["y"], a["x"]) < (b["y"], b["x"]) for a, b in pairwise(positions))


def test_a_panel_has_a_number_of_its_own_that_lasts(
    models: Mapping[str, Mapping[str, Any]],
) -> None:
    for model in models.values():
        numbers = [panel["id"] for panel in model["panels"]]
        assert len(set(numbers)) == len(numbers), model["uid"]
        for panel in model["panels"]:
            if panel["type"] != "row":
                assert panel["id"] == number(panel["title"])


def stat(title: str, width: int, height: int = 4) -> Stat:
    return Stat(title=title, about="", queries=[], unit="none", width=width, height=height)


def test_shelf_stands_upon_shelf() -> None:
    rows = [Row("one", [stat("a", 16), stat("b", 8), stat("c", 24, 6)]), Row("two", [])]
    assert [(at.x, at.y, at.w, at.h) for _, at in place(rows)] == [
        (0, 0, 24, 1),
        (0, 1, 16, 4),
        (16, 1, 8, 4),
        (0, 5, 24, 6),
        (0, 11, 24, 1),
    ]


@pytest.mark.parametrize(
    ("panels", "fault"),
    [
        ([stat("a", 16), stat("b", 12)], "do not fit"),
        ([stat("a", 12, 4), stat("b", 12, 5)], "do not fit"),
        ([stat("a", 12)], "room left"),
    ],
)
def test_a_row_that_is_not_full_is_refused(panels: list[Stat], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        list(place([Row("row", panels)]))
