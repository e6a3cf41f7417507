"""How long the nights took, beside how long they may take: what `make nights` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

PROPERTY = "night"
"""Under which a test reports what it measured, in whatever process it ran."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is promised of a night, in seconds from its fault, at the shipped intervals."""

    seen: float
    healed: float
    """Or safely held, and the on-call paged."""


LIMITS: Mapping[int, Limits] = {
    1: Limits(seen=60, healed=60),
    2: Limits(seen=30, healed=90),
    3: Limits(seen=30, healed=100),  # healed: two workers in turn, each with 30 s to settle
    4: Limits(seen=60, healed=120),  # seen: beyond the time that a step usually takes
    5: Limits(seen=30, healed=30),
}
"""By night: those of the incident reports."""

Row = tuple[int, str, float, float]
"""A night, what was waited for, and seconds: that it took, that it may take."""
Measure = Callable[[int, str, float, float], None]
"""Notes a row."""


def table(rows: Iterable[Row]) -> list[str]:
    """Lines for a terminal, by night; what took too long is marked."""
    lines = [f"{'night':>5}  {'what':<58}{'seconds':>9}{'limit':>8}"]
    lines += [
        f"{night:>5}  {what:<58}{took:>9.1f}{limit:>8.0f}{'' if took < limit else '  TOO LATE'}"
        for night, what, took, limit in sorted(rows, key=lambda row: row[0])
    ]
    return lines
