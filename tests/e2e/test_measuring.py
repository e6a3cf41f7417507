from __future__ import annotations

from measuring import LIMITS, Row, table

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
