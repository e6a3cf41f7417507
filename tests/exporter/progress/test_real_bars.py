"""Logs as real programs wrote them: bars, an evaluation, a save, and bars drawn in turn."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from trainwarden_exporter.config import Config
from trainwarden_exporter.config_file import loader
from trainwarden_exporter.logs.follower import LogFollower
from trainwarden_exporter.progress.tracker import ProgressTracker
from trainwarden_exporter.run_specs import log_specs, progress_spec

SAMPLE = Path(__file__).parent / "samples" / "transformers_5_23_bar.log"
"""The steps 28 to 42 of 100; an evaluation of 50 batches after 30, a save after 40."""

RICH = SAMPLE.parent / "rich_bars_of_epochs.log"


@pytest.fixture
def followed(tmp_path: Path) -> tuple[Path, LogFollower, ProgressTracker]:
    text = f"runs: [{{name: run, path: {tmp_path}, framework: trl}}]"
    (run,) = loader.parse(text, tmp_path / "exporter.yml", Config).runs
    tracker = ProgressTracker([progress_spec(run)])
    (spec,) = log_specs(run)
    path = tmp_path / "train.log"
    path.write_bytes(b"")
    return path, LogFollower(spec, sinks=[tracker.record_line]), tracker


def test_steps_and_phases_are_those_of_the_training(
    followed: tuple[Path, LogFollower, ProgressTracker],
) -> None:
    path, follower, tracker = followed
    follower.poll()
    seen: list[tuple[str | None, int | None]] = []
    draws = SAMPLE.read_bytes().split(b"\r")
    for number, draw in enumerate(draws):
        with path.open("ab") as file:
            file.write(draw if number == 0 else b"\r" + draw)
        values = follower.poll().values
        phase = tracker.phase("run")
        seen.append((phase[0].value if phase else None, tracker.step("run")))
    follower.retire()

    steps = [step for _, step in seen if step is not None]
    assert steps == sorted(steps)
    assert sorted(set(steps)) == list(range(28, 43))
    phases = [phase for phase, _ in groupby(phase for phase, _ in seen if phase is not None)]
    assert phases == [
        *("training", "evaluating", "training", "evaluating", "training"),
        *("saving", "training"),
    ]
    assert {step for phase, step in seen if phase == "evaluating"} == {30}
    assert {step for phase, step in seen if phase == "saving"} == {40}
    ((_, state),) = tracker.states()
    assert (state.step, state.total_steps, state.resumes) == (42, 100, 0)
    assert values["loss"].number == pytest.approx(4.16)


def test_bars_of_rich_for_each_epoch_are_counted_once(tmp_path: Path) -> None:
    """The terminal output of Rich 15, four draws a second: three epochs of 12 steps."""
    log = "{name: trainer, files: [train.log], role: trainer}"
    text = f"runs: [{{name: run, path: {tmp_path}, framework: generic, logs: [{log}]}}]"
    (run,) = loader.parse(text, tmp_path / "exporter.yml", Config).runs
    now = 1_000_000.0
    tracker = ProgressTracker([progress_spec(run)], now=lambda: now, elapsed=lambda: now)
    (spec,) = log_specs(run)
    path, course = tmp_path / "train.log", []
    path.write_bytes(b"")
    follower = LogFollower(spec, sinks=[tracker.record_line], now=lambda: now, clock=lambda: now)
    follower.poll()
    draws = RICH.read_bytes().split(b"\r\x1b[2K\x1b[1A")
    for number, draw in enumerate(draws):
        with path.open("ab") as file:
            file.write(draw if number == 0 else b"\r\x1b[2K\x1b[1A" + draw)
        now += 0.25
        if number % 4 == 0:
            follower.poll()
            course.append(tracker.step("run") or 0)
    follower.poll()
    follower.retire()
    assert course == sorted(course)
    assert tracker.step("run") == 36
