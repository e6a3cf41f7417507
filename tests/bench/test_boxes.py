"""A page that lives on, and what it had shown before."""

from __future__ import annotations

import pytest

import boxes
from boxes import Box, Line

BEFORE = boxes.read(
    b'# TYPE a counter\na_total{x="y z"} 1\nb_timestamp_seconds 100\nc 1\nd 1\n# EOF\n'
)
AFTER = boxes.read(b'a_total{x="y z"} 5\nb_timestamp_seconds 101\nc 2\nd 1\ne_total 7\n')


def test_counters_and_moments_that_had_moved_move_on_and_nothing_else_does() -> None:
    found = {one.series: one.pace for one in boxes.living(BEFORE, AFTER, 2.0)}
    assert found == {
        'a_total{x="y z"}': 2.0,
        "b_timestamp_seconds": 1.0,
        "c": 0.0,
        "d": 0.0,
        "e_total": 0.0,
    }


def test_the_page_shows_them_as_they_are_by_now() -> None:
    box = Box((Line("a_total", 5.0, 2.0), Line("c", 2.0, 0.0)), moment=1000.0)
    assert box.page(1010.0) == b"a_total 25.0\nc 2.0\n"


def test_the_history_goes_as_far_back_as_is_looked_and_ends_before_now() -> None:
    box = Box((Line('a_total{x="y"}', 50.0, 2.0), Line("c", 2.0, 0.0)), moment=1000.0)
    lines = box.history({"a_total": 10.0, "run:x:max": 5.0}, 1000.0).decode().splitlines()
    assert lines == [
        'a_total{x="y"} 30.0 990000',
        'a_total{x="y"} 40.0 995000',
        'run:x:max{run="bench"} 975.0 995000',
    ]


@pytest.mark.parametrize(
    ("expression", "window"),
    [
        ('max_over_time(a{b="c"}[3m]) > a[5s]', 180),
        ("a[1m] offset 4m", 300),
        ("a[1d]", boxes.LONGEST),
    ],
)
def test_windows_are_the_longest_of_a_metric(expression: str, window: float) -> None:
    assert boxes.windows([expression]) == {"a": window}
