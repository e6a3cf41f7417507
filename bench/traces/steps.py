"""Real step times through the exporter's own reading of a log, and its stall limits.

The rules call a run stalled when its silence exceeds the limits that the exporter exports: at the
end of each step its silence is compared with the limits of the moment before. Each sequence is
replayed at several lengths of a step.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import median

from bounds import share_at_most
from results import Result
from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.progress.counts import resolve_count
from trainwarden_exporter.progress.events import StepReported
from trainwarden_exporter.progress.log_lines import events_from_line
from trainwarden_exporter.progress.reducer import apply
from trainwarden_exporter.progress.stall_limits import StallLimits, pause_limit, restart_limit
from trainwarden_exporter.progress.state import RunProgress

JOBS = "steps/job_*.csv"
SPREADS = "steps/coefficient_variation*.csv"
LENGTHS = (0.5, 1, 2, 3, 5, 10, 20, 30, 45, 60, 120, 180, 300, 450, 600)
"""Seconds of a median step."""
SLOWEST_OF_TEN = 1.54
"""Standard deviations by which the slowest of ten workers is above their mean, on average."""
WARNING = 0.6
"""Share of the limit at which TrainingStepStalled warns."""
LEAST = 30.0
"""Seconds of silence that are below every share of every limit."""
_LINE = LinePattern("step", r"step (?P<step>\d+)", Phase.TRAINING)


@dataclass(frozen=True, slots=True)
class Steps:
    """Relative times of consecutive steps of a real job; their median is 1."""

    name: str
    times: tuple[float, ...]


def read(folder: Path) -> tuple[Steps, ...]:
    """A synchronous step takes as long as its slowest worker; each worker also counts alone."""
    found: list[Steps] = []
    for path in sorted(folder.glob(JOBS)):
        own: dict[str, list[float]] = {}
        steps: dict[int, float] = {}
        with path.open() as file:
            for row in csv.DictReader(file):
                at, seconds = int(float(row["time"])), float(row["batch_time_norm"])
                own.setdefault(row["worker"], []).append(seconds)
                steps[at] = max(seconds, steps.get(at, 0.0))
        found.append(_relative(path.stem, [steps[at] for at in sorted(steps)]))
        found += [_relative(f"{path.stem}, worker {name}", times) for name, times in own.items()]
    for path in sorted(folder.glob(SPREADS)):
        with path.open() as file:
            for number, cells in enumerate(csv.reader(file)):
                spreads = [float(cell) for cell in cells[1:] if cell]
                if number:
                    times = [1 + SLOWEST_OF_TEN * max(0.0, spread) for spread in spreads]
                    found.append(_relative(cells[0], times))
    return tuple(one for one in found if one.times)


def _relative(name: str, times: Sequence[float]) -> Steps:
    times = [one for one in times if isfinite(one) and one > 0]
    middle = median(times) if times else 1.0
    return Steps(name, tuple(one / middle for one in times))


@dataclass(slots=True)
class Replayed:
    """What came of sequences at one length of a step."""

    length: float
    steps: int = 0
    seconds: float = 0.0
    warned: int = 0
    stalled: int = 0
    ordered: int = 0
    nearest: float = 0.0
    """The largest share of the restart limit."""


def replay(sequences: Sequence[Steps], length: float) -> Replayed:
    found = Replayed(length)
    for sequence in sequences:
        for silence, limit, restart in silences(sequence.times, length):
            found.warned += silence > WARNING * limit
            found.stalled += silence > limit
            found.ordered += silence > restart
            found.nearest = max(found.nearest, silence / restart)
        found.steps += len(sequence.times)
        found.seconds += sum(sequence.times) * length
    return found


def silences(times: Sequence[float], length: float) -> Iterator[tuple[float, float, float]]:
    """The silence of each step that may matter, and the limits right before it ended."""
    limits = StallLimits()
    state, now = RunProgress(), 1e6
    for step, relative in enumerate(times, 1):
        silence = relative * length
        now += silence
        if step > 1 and silence > LEAST:
            limit = pause_limit(state, limits)
            restart = restart_limit(state, limits, evaluations_announced=False)
            if limit is not None and restart is not None:
                yield silence, limit, restart
        event = LineEvent("run", "log", "trainer", "step", {"step": str(step)}, now)
        for report in events_from_line(event, _LINE, dated=True):
            if isinstance(report, StepReported):
                before, accepted = resolve_count(state, report, configured_total=None)
                state = before if accepted is None else apply(before, accepted)


def table(sequences: Sequence[Steps], replayed: Sequence[Replayed]) -> Result:
    steps = sum(one.steps for one in replayed)
    ordered = sum(one.ordered for one in replayed)
    rows = tuple(
        (
            f"{one.length:g} s",
            f"{one.steps:,}",
            f"{one.seconds / 86_400:,.1f}",
            str(one.warned),
            str(one.stalled),
            str(one.ordered),
            f"{100 * one.nearest:.0f} %",
        )
        for one in replayed
    )
    real = sum(len(one.times) for one in sequences)
    return Result(
        "Step times",
        f"{real:,} real step times in {len(sequences)} sequences, each replayed at "
        f"{len(replayed)} lengths of a median step: {steps:,} steps, and "
        f"{ordered} of them would have led to a restart (with 95 % confidence, and each real "
        f"step counted once, at most {1e6 * share_at_most(ordered, real):.0f} in a million). No "
        "step here is an evaluation or a save. What counts is the silence of each step against "
        "the exporter's limits of the moment before, of a framework that logs no evaluations; the "
        "rules add only delay to that. A warning is true of these steps: each took over three "
        "times as long as usual. Of most sequences the record has only the spread over the ten "
        f"workers; the slowest is taken to be {SLOWEST_OF_TEN} standard deviations above the mean.",
        (
            "median step",
            "steps",
            "days of a host",
            "over 60 % of the limit (warning)",
            "over the limit",
            "over the restart limit",
            "nearest to it",
        ),
        rows,
    )
