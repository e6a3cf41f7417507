"""What the account of ten runs costs at each scrape, in CPU time, with the files that it keeps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.progress.run_metrics import run_samples
from trainwarden_exporter.progress.run_time_evidence import RunLook
from trainwarden_exporter.progress.run_time_history import DAY_SECONDS, PART_SECONDS, RunTimes
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.progress.step_timing import ProgressSign, StepMark
from verdicts.page import SCRAPE

RUNS = 10
SCRAPES = 2000
STEP = 4 * SCRAPE
"""Seconds of a step: a quarter of the runs make one between two scrapes."""
ALLOWED = 0.0005
"""CPU seconds a scrape."""


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of each scrape, and the bytes that are kept on disk."""

    seconds: tuple[float, ...]
    kept: int

    @property
    def over(self) -> int:
        """Scrapes that cost more than is allowed."""
        return sum(one > ALLOWED for one in self.seconds)


def _progress(step: int, at: float) -> RunProgress:
    marks = (StepMark(step, at),)
    return RunProgress(
        steps=marks, last_sign=ProgressSign(at), phase=Phase.TRAINING, last_sign_at=at
    )


def _scrapes(times: RunTimes, specs: list[ProgressSpec], clock: list[float]) -> Iterator[float]:
    states = {spec.run: _progress(0, clock[0]) for spec in specs}
    for number in range(int(DAY_SECONDS / PART_SECONDS) + SCRAPES):
        # A day that is shown in parts, and then scrapes as they are.
        clock[0] += SCRAPE if number >= DAY_SECONDS / PART_SECONDS else PART_SECONDS
        began = time.thread_time()
        times.follow_clock()
        for at, spec in enumerate(specs):
            if (number + at) % int(STEP / SCRAPE) == 0:
                new = _progress(number + 1, clock[0])
                times.count_event(spec, states[spec.run], new, clock[0])
                states[spec.run] = new
            times.count_look(spec, states[spec.run], RunLook(sign_at=clock[0]))
        saved = times.save([spec.run for spec in specs])
        for spec in specs:
            for _ in run_samples(spec, saved[spec.run], ()):
                pass
        if number >= DAY_SECONDS / PART_SECONDS:
            yield time.thread_time() - began


def measure() -> Cost:
    """Counts the time of ten runs, a day and then scrape by scrape."""
    line = LinePattern("step", r"step (?P<step>\d+)")
    lines = {("trainer", line.name): line}
    specs = [ProgressSpec(f"run-{number}", lines=lines) for number in range(RUNS)]
    clock = [1_000_000.0]
    with TemporaryDirectory(prefix="ledger-") as name:
        folder = Path(name)
        times = RunTimes([spec.run for spec in specs], folder, lambda: clock[0], lambda: clock[0])
        seconds = tuple(_scrapes(times, specs, clock))
        return Cost(seconds, sum(file.stat().st_size for file in folder.iterdir()))
