"""The last 24 hours of a run, as a bar and in words."""

from __future__ import annotations

import re

from trainwarden_exporter.progress.run_time import RunState
from trainwarden_exporter.progress.run_time_history import DAY_SECONDS
from trainwarden_exporter.status_page.day import day_section

NOW = 1_000_000.0
HOUR = 3600.0


def rectangles(text: str) -> list[tuple[str, float, float]]:
    found = re.findall(r'<rect class="(\w+)" x="([\d.]+)" width="([\d.]+)"', text)
    return [(tone, float(x), float(width)) for tone, x, width in found]


def test_a_day_has_a_bar_of_its_states_and_each_state_in_words() -> None:
    text = day_section(
        [
            (NOW - 12 * HOUR, {}),
            (NOW - 6 * HOUR, {RunState.TRAINING: 6 * HOUR}),
            (NOW, {RunState.TRAINING: 3 * HOUR, RunState.DOWN: 3 * HOUR}),
        ],
        NOW,
    )
    assert "training 9 h, down 3 h" in text
    assert rectangles(text) == [("fill", 50.0, 25.0), ("fill", 75.0, 12.5), ("bad", 87.5, 12.5)]


def test_a_part_from_before_the_day_begins_with_it_and_fills_no_more_than_its_time() -> None:
    text = day_section(
        [(NOW - 3 * DAY_SECONDS, {}), (NOW, {RunState.UNKNOWN: 3 * DAY_SECONDS})], NOW
    )
    assert rectangles(text) == [("track", 0.0, 100.0)]


def test_a_run_that_was_hardly_watched_has_no_bar() -> None:
    assert day_section([(NOW - 30, {}), (NOW, {RunState.TRAINING: 30})], NOW) == ""
    assert day_section([], NOW) == ""
