"""How long the nights took, beside how long they may take and how long they took without us.

`make nights` prints the former and writes the latter to docs/nights.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.progress.run_time import RunState
from trainwarden_exporter.runtime.formatting import format_duration

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


PAGE = Path(__file__).resolve().parents[2] / "docs" / "nights.md"


@dataclass(frozen=True, slots=True)
class Loss:
    """What a night cost its run."""

    night: int
    row: str
    """How the measured row begins that ends it."""
    state: RunState
    """In which the account of the run has this time."""
    ends: str
    """What ends the time with us;"""
    reported: float | None
    """and the seconds without, as reported; None where the report has no number."""
    words: str
    """What the report says of it."""


LOSSES = (
    Loss(
        1,
        "held, on-call paged (",
        RunState.DOWN,
        "held, and the on-call is paged with the cause",
        None,
        "several days of wrong theories",
    ),
    Loss(
        2,
        "that run restarted as well",
        RunState.STALLED,
        "the server is restarted, then the run, which makes a step",
        13 * 3600 + 24 * 60,
        "05:09 to 18:33, when its operator stopped it",
    ),
    Loss(
        3,
        "the large healed",
        RunState.DOWN,
        "both workers restarted in turn; the search goes on meanwhile",
        10.5 * 3600,
        "10.5 h idle after the last of three crashes",
    ),
    Loss(
        4,
        "server_dead: healed",
        RunState.WAITING_FOR_ROLLOUTS,
        "the inference server is restarted, and the orchestrator of another run",
        None,
        "an unknown number of hours on four GPUs",
    ),
    Loss(
        5,
        "healed: their memory is back",
        RunState.DOWN,
        "the leftovers are ended, and the run may start",
        None,
        "repeated failed starts on four GPUs",
    ),
)

HEAD = """\
# What the nights cost

Written by `make nights`: for how long each of the [five nights](stories.md) kept its run from its
work, with Trainwarden and without; and in which state `trainwarden_run_time_seconds_total` has the
time that was lost without.

With: measured from the fault to the end of the replay's slowest case, with real processes and the
shipped configuration, on a machine that does nothing else
([all moments](performance.md#the-five-nights)). Without: what the people wrote whose runs these
were; that was not replayed, and where their report has no number, none is made up.

| night | state | lost with Trainwarden | until | lost without | as reported |
|---|---|--:|---|--:|---|
"""


def page(rows: Iterable[Row]) -> str | None:
    """docs/nights.md; None unless all nights were measured."""
    known = list(rows)
    found = [
        (loss, took)
        for loss in LOSSES
        for night, what, took, _ in known
        if night == loss.night and what.startswith(loss.row)
    ]
    if [loss for loss, _ in found] != list(LOSSES):
        return None
    lines = [
        f"| {loss.night} | {loss.state} | {took:.0f} s | {loss.ends} | "
        f"{'no number' if loss.reported is None else format_duration(loss.reported)} "
        f"| {loss.words} |"
        for loss, took in found
    ]
    return HEAD + "\n".join(lines) + "\n"
