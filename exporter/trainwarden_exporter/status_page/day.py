"""Status page: how a run spent the last 24 hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from trainwarden_exporter.progress.run_time import RunState
from trainwarden_exporter.progress.run_time_history import DAY_SECONDS, Part
from trainwarden_exporter.runtime.formatting import format_duration
from trainwarden_exporter.status_page.fragments import quiet

_CLASSES: Mapping[RunState, str] = {
    **dict.fromkeys((RunState.DOWN, RunState.STALLED), "bad"),
    **dict.fromkeys(
        (RunState.STARTING, RunState.FIRST_STEP, RunState.REDOING, RunState.HELD), "warn"
    ),
    **dict.fromkeys((RunState.FINISHED, RunState.UNKNOWN), "track"),
}
"""Colours of the states other than those of work. The words below the bar name each state."""

LEAST_SECONDS = 60.0
"""A state that took less is not named."""


def day_section(parts: Sequence[Part], now: float) -> str:
    """Returns the last 24 hours as a bar with the states in words, as HTML; "" if too short."""
    spent: dict[RunState, float] = {}
    for _, seconds in parts:
        for state, more in seconds.items():
            spent[state] = spent.get(state, 0.0) + more
    named = sorted(
        (state for state, seconds in spent.items() if seconds >= LEAST_SECONDS),
        key=lambda state: -spent[state],
    )
    if not named:
        return ""
    words = ", ".join(
        f"{state.replace('_', ' ')} {format_duration(round(spent[state]))}" for state in named
    )
    return (
        '<h3>Last 24 hours</h3><svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" '
        f'role="img" aria-label="{words}"><rect class="track" width="100" height="4"/>'
        f"{_rectangles(parts, now)}</svg><p>{quiet(words)}</p>"
    )


def _rectangles(parts: Sequence[Part], now: float) -> str:
    """Returns a rectangle for each state of each part, as wide as the time that it took."""
    drawn = []
    for (before, _), (end, seconds) in pairwise(((now - DAY_SECONDS, {}), *parts)):
        begin = max(before, now - DAY_SECONDS)
        length, total = max(0.0, end - begin), sum(seconds.values())
        for state in RunState:
            share = seconds.get(state, 0.0) / total if total else 0.0
            width = 100 * share * length / DAY_SECONDS
            if width > 0:
                drawn.append((begin, width, _CLASSES.get(state, "fill")))
                begin += width / 100 * DAY_SECONDS
    return "".join(
        f'<rect class="{tone}" x="{100 * (begin - now + DAY_SECONDS) / DAY_SECONDS:.2f}" '
        f'width="{width:.2f}" height="4"/>'
        for begin, width, tone in drawn
    )
