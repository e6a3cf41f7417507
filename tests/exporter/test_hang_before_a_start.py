"""A run that is silent before the exporter starts is judged as if it were silent later.

A hang is found by its stacks; an evaluation keeps its limit.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import Popen

import pytest
from tests.waiting import DEADLINE_SECONDS, until

from trainwarden_exporter import app
from trainwarden_exporter.app import Exporter
from trainwarden_exporter.collectors.stacks import StacksCollector
from trainwarden_exporter.config import Config
from trainwarden_exporter.processes.stacks import sampler
from trainwarden_exporter.progress.tracker import ProgressTracker

MARK = f"hang-before-{os.getpid()}-"
TRAINS = """
import itertools, pathlib, queue, sys, time
for step in itertools.count(1):
    print(f"epoch 0 step {step} loss 0.5", flush=True)
    time.sleep(0.3)
    end = pathlib.Path(sys.argv[2])
    if end.exists():
        print("saved", flush=True)
        while end.read_text() == "evaluate":
            sum(range(100_000))
        queue.Queue().get()
"""
STUCK = 120.0
"""Seconds after which a run that is stuck may be restarted."""
EVALUATION = 3600.0
"""The same if it moves, by default."""
SILENCE = 2100.0
"""Seconds that the evaluation has taken when the exporter starts again."""

Values = dict[tuple[str, ...], float]


class Run:
    def __init__(self, folder: Path) -> None:
        self.log, self.end = folder / "train.log", folder / "end"
        run = {
            "name": "night",
            "path": str(folder),
            "progress": {"stall_floor": 1},
            "workers": [{"name": "trainer", "role": "trainer", "match": {"command": MARK}}],
            "logs": [{"name": "trainer", "files": ["train.log"], "worker": "trainer"}],
        }
        self.config = Config.model_validate({"state_folder": str(folder / "state"), "runs": [run]})

    def start_exporter(self) -> Exporter:
        return Exporter(None, build=lambda _: app.build_collectors(self.config))

    def hang(self, then: str = "") -> None:
        self.end.write_text(then)
        until(lambda: self.log.read_text().endswith("saved\n"))


async def look(exporter: Exporter) -> Values:
    """What the exporter shows of the run, by name and the labels beside the run."""
    outcomes = await exporter.scraper.scrape(10, ["workers", "logs", "stacks", "progress"])
    return {
        (sample.name.removeprefix("trainwarden_"), *list(sample.labels.values())[1:]): sample.value
        for outcome in outcomes
        for family in outcome.families
        for sample in family.samples
    }


async def until_seen(exporter: Exporter, seen: Callable[[Values], object]) -> Values:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not seen(values := await look(exporter)):  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.1)  # between two scrapes, as Prometheus makes them
    return values


def is_proved(values: Values) -> bool:
    return values.get(("training_stall_restart_limit_seconds",)) == STUCK


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(sampler, "ROUND_SECONDS", 1.0)
    monkeypatch.setattr(app, "StacksCollector", partial(StacksCollector, interval=0.2))
    run = Run(tmp_path)
    command = [sys.executable, "-c", TRAINS, MARK, str(run.end)]
    with run.log.open("wb") as log, Popen(command, stdout=log) as one:
        yield run
        one.kill()


async def test_by_an_exporter_that_has_never_seen_it(run: Run) -> None:
    run.hang()
    exporter = run.start_exporter()
    values = await until_seen(exporter, is_proved)
    written = run.log.stat().st_mtime
    assert values["training_progress_timestamp_seconds",] == pytest.approx(written, abs=0.001)
    assert values["training_stall_limit_seconds",] >= 1800  # without the proof
    exporter.close()


async def test_by_the_next_exporter_which_knows_the_pace(run: Run) -> None:
    first = run.start_exporter()
    await until_seen(first, lambda one: one.get(("training_stall_limit_seconds",), 1800) < 1800)
    run.hang()
    last = run.log.read_text().count("step")
    before = await until_seen(first, lambda one: one["training_step",] == last)
    first.close()
    second = run.start_exporter()
    after = await until_seen(second, is_proved)
    for name in ("progress_timestamp_seconds", "step_duration_median_seconds"):
        assert after[f"training_{name}",] == before[f"training_{name}",]
    assert after["training_stall_limit_seconds",] < STUCK
    second.close()


async def test_an_evaluation_that_goes_on_over_a_start_keeps_its_limit(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an hour is its limit if nothing moves: a look must not come too late to lengthen it."""
    first = run.start_exporter()
    await until_seen(first, lambda one: one.get(("training_stall_limit_seconds",), 1800) < 1800)
    run.hang("evaluate")
    before = await until_seen(first, lambda one: one.get(("stack_movement", "moving")))
    assert before["training_stall_restart_limit_seconds",] == EVALUATION
    first.close()

    def later(clock: Callable[[], float]) -> Callable[[], float]:
        return lambda: clock() + SILENCE

    now, elapsed = later(time.time), later(lambda: time.clock_gettime(time.CLOCK_BOOTTIME))
    monkeypatch.setattr(time, "time", now)
    monkeypatch.setattr(app, "ProgressTracker", partial(ProgressTracker, now=now, elapsed=elapsed))
    monkeypatch.setattr(app, "StacksCollector", partial(StacksCollector, interval=0.2, now=now))
    second = run.start_exporter()
    seen = [await look(second) for _ in range(20)]
    last = await until_seen(second, lambda one: one["stack_movement", "moving"])
    second.close()
    for values in (*seen, last):
        assert time.time() - values["training_progress_timestamp_seconds",] > SILENCE
        assert values["training_stall_restart_limit_seconds",] == EVALUATION
        assert values["stack_movement", "undecided"] + values["stack_movement", "moving"] == 1
