"""Panels are drawn as Grafana would show them, as far as a picture can."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import preview
from boards import BOARDS
from previewing import drawing
from previewing.answered import Answered
from previewing.asking import Series, Window
from previewing.rows import headings, joined, rows
from previewing.sheet import Mark, Place, Sheet, cut
from previewing.shown import COLOURS, Field, number

WINDOW = Window(1000, 4600)


@pytest.mark.parametrize(
    ("value", "unit", "decimals", "text"),
    [
        (3, "none", None, "3"),
        (0.25, "none", 1, "0.2"),
        (0.004, "none", None, "0.004"),
        (12345, "short", None, "12.35 K"),
        (0.123, "percentunit", None, "12.3%"),
        (1, "percentunit", 0, "100%"),
        (3 << 30, "bytes", None, "3 GiB"),
        (-(3 << 20), "bytes", 1, "-3.0 MiB"),
        (1500, "Bps", None, "1.5 kB/s"),
        (1.755e9, "hertz", None, "1.75 GHz"),
        (250.3, "watt", None, "250.3 W"),
        (65, "celsius", None, "65 °C"),
        (0.5, "cps", None, "0.5 c/s"),
        (0.012, "s", None, "12 ms"),
        (90, "s", None, "1.5 min"),
        (0, "s", None, "0 s"),
        (math.inf, "s", None, "inf"),
    ],
)
def test_a_number_has_its_unit(value: float, unit: str, decimals: int | None, text: str) -> None:
    assert number(value, unit, decimals) == text


def test_a_time_is_shown_relative_to_now() -> None:
    assert number(1000 * (time.time() - 7200), "dateTimeFromNow") == "2 hour ago"
    assert number(1000 * (time.time() + 7230), "dateTimeFromNow") == "in 2 hour"
    with pytest.raises(ValueError, match="furlong"):
        number(1, "furlong")


def test_every_unit_of_the_boards_can_be_written(models: Mapping[str, Mapping[str, Any]]) -> None:
    for unit in json.dumps(models).split('"unit": "')[1:]:
        assert number(1, unit.partition('"')[0])


def test_a_meaning_goes_before_a_threshold() -> None:
    field = Field(
        {
            "mappings": [{"type": "value", "options": {"1": {"text": "up", "color": "blue"}}}],
            "thresholds": {
                "steps": [{"value": None, "color": "green"}, {"value": 2, "color": "red"}]
            },
        }
    )
    assert (field.text(1), field.colour(1)) == ("up", COLOURS["blue"])
    assert (field.text(3), field.colour(3)) == ("3", COLOURS["red"])
    assert field.colour(0) == COLOURS["green"]
    assert field.text("name") == "name"


def one(value: float, **labels: str) -> Series:
    return Series(labels, [(4600.0, value)])


def panel(title: str) -> Mapping[str, Any]:
    """A panel of some board, as Grafana has it."""
    found = [
        each
        for board in BOARDS
        for each in board.model(BOARDS)["panels"]
        if each["title"] == title and each["type"] != "row"
    ]
    return dict(found[0])


def test_answers_with_the_same_labels_are_one_row() -> None:
    table = panel("Checkpoints")
    answers: list[list[Series]] = [[] for _ in table["targets"]]
    answers[0] = [one(3, run="a", checkpoint="c", instance="i"), one(1, run="b", checkpoint="c")]
    answers[2] = [one(70, run="a", checkpoint="c", instance="i")]
    assert rows(table, answers) == [
        {"run": "a", "checkpoint": "c", "instance": "i", "complete": 3, "newest step": 70},
        {"run": "b", "checkpoint": "c", "complete": 1},
    ]
    assert headings(table)[:3] == ["run", "checkpoint", "newest step"]


def test_a_row_with_fewer_labels_joins_the_rows_that_have_them() -> None:
    few, more = frozenset({("a", "1")}), frozenset({("a", "1"), ("b", "2")})
    assert joined({few: {"a": "1", "x": 5.0}, more: {"a": "1", "b": "2", "y": 6.0}}) == [
        {"a": "1", "b": "2", "x": 5.0, "y": 6.0}
    ]


def test_spaces_that_a_browser_does_not_show_are_not_shown() -> None:
    (row,) = rows(panel("Firing alerts"), [[one(1, what="  GPU  1")]])
    assert row["what"] == "GPU 1"


def test_the_greatest_comes_first_where_a_column_says_so() -> None:
    table = panel("Decisions, and why")
    found = rows(table, [[one(n, verdict="wait", reason=f"r{n}") for n in (1, 3, 2)]])
    assert [row["times"] for row in found] == [3, 2, 1]
    assert "job" not in found[0]


def drawn(title: str, *answers: list[Series]) -> list[str]:
    """All texts in the picture of a panel."""
    sheet = Sheet(800, 400, WINDOW, [Mark(2000, "red"), Mark(9000, "blue")])
    shown = panel(title)
    rest: list[list[Series]] = [[] for _ in shown.get("targets", ())[len(answers) :]]
    drawing.panel(sheet, Answered(shown, [*answers, *rest]), Place(0, 0, 800, 400))
    axes = [text for each in sheet.figure.axes for text in each.texts]
    return [text.get_text() for text in (*sheet.figure.texts, *axes)]


def over(values: list[float], **labels: str) -> Series:
    return Series(labels, [(1000 + 600 * index, value) for index, value in enumerate(values)])


def test_an_empty_panel_says_why() -> None:
    texts = drawn("Containers")
    assert texts[0] == "Containers"
    assert "no containers are monitored" in " ".join(texts[1].split("\n"))


def test_a_stat_shows_its_word() -> None:
    assert drawn("Verdict", [one(2)]) == ["Verdict", "act now"]


def test_two_numbers_of_a_stat_have_their_names() -> None:
    assert drawn("Progress", [one(-6)], [one(3)], [one(9)]) == [
        *("Progress", "training", "phase", "3", "step", "9", "of"),
    ]


def test_a_graph_has_a_legend_of_its_series() -> None:
    texts = drawn(
        "Memory by worker",
        [over([1, 2, 4], worker="a"), over([3, math.nan], worker="b")],
        [over([5, 5], worker="a")],
    )
    assert [text for text in texts if text not in ("—", "Memory by worker")] == [
        *("a", "b", "a limit"),
    ]


def test_a_stacked_graph_with_thresholds_and_gaps_is_drawn() -> None:
    assert "w on 0" in drawn("GPU memory by worker", [over([1, 2], worker="w", gpu="0")])
    assert "r s" in drawn("KV cache in use, by server", [over([0.5], run="r", server="s")])


def test_a_timeline_tells_states_and_leaves_gaps() -> None:
    points = [(1000.0 + 9 * n, 1.0) for n in range(100)] + [
        (3000.0 + 9 * n, 6.0) for n in range(99)
    ]
    texts = drawn("Phase, workers and servers", [Series({"run": "demo"}, points)])
    assert sorted(texts) == ["Phase, workers and servers", "finished", "phase", "training"]


def test_bars_tell_their_share() -> None:
    texts = drawn("Nearest to its limit", [one(0.75)])
    assert [text.strip() for text in texts] == [
        *("Nearest to its limit", "memory of a worker", "75%"),
    ]
    title = "Most expensive causes of the week"
    texts = drawn(title, [one(1800, alertname="TrainingStepStalled")])
    assert [text.strip() for text in texts] == [title, "TrainingStepStalled", "30 min"]


def test_words_are_drawn_without_their_marks() -> None:
    title, *lines = drawn("What you can do")
    assert title == "What you can do"
    assert lines[0] == (
        "- Stop all actions on it: trainwarden hold --run $run --for 2h 'why'; undo: trainwarden "
        "resume --run $run"
    )
    assert "- Runbooks of all alerts; on the host: trainwarden runbook NAME" in lines


def test_a_table_shows_its_columns_in_their_order() -> None:
    texts = drawn("Ends of workers", [one(2, run="r", worker="w", status="SIGKILL")])
    assert texts[1::2] == ["run", "worker", "status", "times"]
    assert texts[2::2] == ["r", "w", "SIGKILL", "2"]


def test_a_text_is_cut_where_there_is_no_room() -> None:
    assert cut("checkpoints", 40, 8) == "checkp…"
    assert cut("short", 400, 8) == "short"


class Quiet:
    """A Prometheus that has nothing to tell."""

    def label_values(self, *_: object) -> list[str]:
        return []

    def at(self, *_: object) -> list[Series]:
        return []

    def over(self, *_: object) -> list[Series]:
        return []


def test_an_empty_board_is_drawn(models: Mapping[str, Mapping[str, Any]], tmp_path: Path) -> None:
    picture = tmp_path / "fleet.png"
    preview.draw(models["trainwarden-fleet"], Quiet(), WINDOW, picture)  # type: ignore[arg-type]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_prometheus_that_is_not_there_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["preview.py", "http://127.0.0.1:1", str(tmp_path)])
    assert preview.main() == 1
    assert "refused" in capsys.readouterr().err
