from __future__ import annotations

import re

from measuring import LIMITS, LOSSES, PAGE, Row, page, table

ROWS: list[Row] = [(2, "healed", 90.0, 90), (1, "seen", 17.72, 60), (2, "seen", 12.9, 30)]


def test_the_nights_are_in_order_and_what_came_too_late_is_marked() -> None:
    head, *lines = table(ROWS)
    assert head.split() == ["night", "what", "seconds", "limit"]
    assert [line.split() for line in lines] == [
        ["1", "seen", "17.7", "60"],
        ["2", "healed", "90.0", "90", "TOO", "LATE"],
        ["2", "seen", "12.9", "30"],
    ]


def test_every_night_has_its_limits() -> None:
    assert [*LIMITS] == [1, 2, 3, 4, 5]
    assert all(0 < limits.seen <= limits.healed for limits in LIMITS.values())


def test_the_page_has_what_each_night_cost_with_us_and_without() -> None:
    rows: list[Row] = [(loss.night, f"{loss.row} …", 10.4 * loss.night, 300) for loss in LOSSES]
    text = page([*rows, (2, "the server dead: seen", 15.0, 30)])
    assert text is not None
    assert re.search(r"^\| 2 \| stalled \| 21 s \| .* \| 13 h 24 min \|", text, re.MULTILINE)
    assert re.search(
        r"^\| 4 \| waiting_for_rollouts \| 42 s \| .* \| no number \|", text, re.MULTILINE
    )
    assert page(rows[1:]) is None
    assert len(re.findall(r"^\| \d \|", PAGE.read_text(), re.MULTILINE)) == len(LIMITS)
