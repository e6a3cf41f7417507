"""What benches found, and the page made of it."""

from __future__ import annotations

import pytest

import performance
import rules_growth
from peers import PeerMissing
from results import Growth, Result, picture

LATE = "TOO LATE"
LINE = Growth("Boxes", "boxes", "ms", ((1, 3), (10, 21), (100, 201)))
FOUND = Result("Rules", "What they cost.", ("boxes", "cost"), (("1", "3 ms"),), (LINE,))
OUTPUT = """..                                              [100%]
night  what                                                        seconds   limit
    1  seen                                                           17.7      60
    2  healed                                                         90.0      90  TOO LATE
2 passed in 300.00s
"""


def test_the_slope_is_that_of_the_line_through_the_points() -> None:
    assert LINE.slope == pytest.approx(2)


def test_the_power_tells_linear_growth_from_worse() -> None:
    for power in (0.5, 1.0, 2.0):
        grown = Growth("x", "x", "y", tuple((size, 7 * size**power) for size in (1, 10, 100)))
        assert grown.power == pytest.approx(power)
    assert Growth("x", "x", "y", ((0, 1), (1, 0))).power is None


def test_a_result_is_a_table_for_a_terminal_and_for_a_page() -> None:
    assert FOUND.text().splitlines()[:3] == ["Rules", "  boxes  cost", "  1      3 ms"]
    assert "| boxes | cost |\n| --- | --- |\n| 1 | 3 ms |\n" in FOUND.page()
    assert "2 ms for one more of boxes" in FOUND.page()


def test_a_picture_has_a_graph_for_each_growth() -> None:
    assert len(picture([LINE, LINE]).axes) == 2


def test_the_picture_has_two_graphs_in_a_row_and_no_empty_frame() -> None:
    axes = picture([LINE, LINE, LINE]).axes
    assert [one.axison for one in axes] == [True, True, True, False]
    assert axes[0].get_xlabel() == "boxes"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(performance, "peer", lambda *_: (None, "1.2"))
    monkeypatch.setattr(performance, "python_peer", missing)
    monkeypatch.setattr(rules_growth, "prometheus_version", lambda: "2.42")
    failed = {"storm": "It could not be measured: no port."}
    return performance.page({"gpus": FOUND}, failed, performance.nights(OUTPUT))


def missing(package: str) -> tuple[list[str], str]:
    raise PeerMissing(f"{package} cannot be fetched: no network")


def test_the_page_has_every_section_the_machine_and_the_slopes(page: str) -> None:
    assert "process-exporter 1.2" in page
    assert "## Rules\n" in page
    assert "GiB of memory, Linux " in page
    assert "performance-growth.svg" in page
    assert "2 ms for one more of boxes" in page


def test_the_page_tells_what_could_not_be_measured(page: str) -> None:
    assert "## Storm\n\nIt could not be measured: no port." in page
    assert "No result from: storm" in page
    assert "nvitop-exporter cannot be fetched: no network" in page


def test_the_nights_are_taken_from_what_was_printed_and_nothing_else_is() -> None:
    section = performance.nights(OUTPUT)
    assert section.rows == (("1", "seen", "17.7", "60", ""), ("2", "healed", "90.0", "90", LATE))
    assert "passed" not in section.page()
    with pytest.raises(SystemExit):
        performance.nights("2 passed in 300.00s\n")


def test_a_page_without_the_nights_says_how_they_are_had() -> None:
    section = performance.nights(None)
    assert "make nights" in section.about
    assert not section.rows


def test_sections_of_some_benches_are_renewed_or_added_with_their_targets(page: str) -> None:
    columns = ("call", "median", "slowest batch", "beside a write")

    def beats(median: str) -> Result:
        rows = (("trainwarden.beat", median, "9.0 µs", "1.20x"),)
        return Result("A beat of a training", "Called often.", columns, rows)

    once = performance.renewed(page, {"beats": beats("3.0 µs")})
    assert once.count("## A beat of a training\n") == 1
    assert once.index("## A beat of a training\n") < once.index("## The five nights\n")
    assert "| A call of trainwarden.beat | at most 20 µs | 3 µs | yes |\n" in once
    twice = performance.renewed(once, {"beats": beats("30.0 µs")})
    assert twice == once.replace("| 3.0 µs |", "| 30.0 µs |").replace(
        "| 3 µs | yes |", "| 30 µs | **no** |"
    ).replace("targets that were set, 2", "targets that were set, 1")
    others = [line for line in page.splitlines() if "targets that were set" not in line]
    assert set(others) <= set(twice.splitlines())
