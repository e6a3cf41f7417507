"""Attempts of a run are remembered, and a loop is distinguished from a crash."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.processes.matching import WorkerKey, WorkerLiveness
from trainwarden_exporter.progress.attempts import (
    MAX_ATTEMPTS,
    MAX_RUNS,
    AttemptLog,
    RunAttempt,
    attempt_ends,
)
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.tracker import ProgressTracker

KEY = WorkerKey("grpo", "trainer")
SPEC = ProgressSpec(
    "grpo",
    lines={("trainer", "step"): LinePattern("step", r"step (?P<step>\d+)", phase=Phase.TRAINING)},
    trainers=("trainer",),
)


@dataclass
class Life:
    """A trainer that lives again and again, looked at every second."""

    folder: Path | None = None
    now: float = 1_000_000.0
    started: float | None = None
    exited: tuple[int, float] | None = None

    def __post_init__(self) -> None:
        self.restart_exporter()

    def restart_exporter(self) -> None:
        self.tracker = ProgressTracker(
            [SPEC], state_folder=self.folder, now=lambda: self.now, elapsed=lambda: self.now
        )
        self.log = AttemptLog(self.folder)

    def look(self) -> None:
        code, at = self.exited or (None, None)
        trainer = WorkerLiveness(KEY, self.started, False, self.now, code, at)
        self.log.record("grpo", trainer, self.tracker.state("grpo"), self.tracker.error("grpo"))
        self.tracker.record_trainer("grpo", self.started, finished=False)

    def attempt(self, *steps: int, code: int, seconds: float = 17.0) -> None:
        self.started = self.now
        self.look()
        for step in steps:
            self.now += seconds / len(steps)
            self.tracker.record_line(
                LineEvent("grpo", "trainer", "trainer", "step", {"step": str(step)}, self.now)
            )
            self.look()
        self.now += 0 if steps else seconds
        self.started, self.exited = None, (code, self.now)
        self.look()
        self.now += 3

    @property
    def attempts(self) -> tuple[RunAttempt, ...]:
        return self.log.attempts("grpo")


def test_an_attempt_has_its_steps_its_time_and_its_exit() -> None:
    life = Life()
    life.attempt(51, 52, 53, code=137, seconds=60)
    (attempt,) = life.attempts
    assert (attempt.first_step, attempt.last_step, attempt.exit_code) == (51, 53, 137)
    assert attempt.ended is not None
    assert attempt.ended - attempt.started == 60


def test_attempts_that_end_alike_are_a_loop() -> None:
    life = Life()
    life.attempt(*range(1, 90), code=1, seconds=3600)
    for last in (57, 58, 57, 57):
        life.attempt(56, last, code=128)
    ends = attempt_ends(life.attempts)
    assert (ends.ended, ends.alike) == (5, 4)
    assert ends.text == (
        "4 of the last 5 attempts ended at step 57 ± 1 with exit code 128 after about 17 s: "
        "another restart is unlikely to help"
    )


def test_attempts_that_end_anywhere_or_otherwise_or_well_are_none() -> None:
    for ends in (
        [(57, 1), (80, 1), (99, 1)],
        [(57, 1), (57, 137), (57, 143)],
        [(57, 0), (57, 0), (57, 0)],
        [(57, 1), (57, 1)],
    ):
        life = Life()
        for step, code in ends:
            life.attempt(step - 1, step, code=code)
        assert attempt_ends(life.attempts).text == "", ends


def test_a_loop_has_the_time_of_its_shortest_and_of_its_longest_attempt() -> None:
    life = Life()
    for seconds in (57, 7.4, 7):
        life.attempt(55, 56, code=1, seconds=seconds)
    assert attempt_ends(life.attempts).text == (
        "3 of the last 3 attempts ended at step 56 with exit code 1 after 7 s to 57 s: "
        "another restart is unlikely to help"
    )


def test_a_signal_that_ended_an_attempt_is_no_exit_code_of_the_program() -> None:
    """The remediator ends a hung trainer by SIGTERM: that is not how it failed."""
    life = Life()
    for seconds in (164, 133, 242):
        life.attempt(35, 36, code=143, seconds=seconds)
    assert attempt_ends(life.attempts).text == (
        "3 of the last 3 attempts ended at step 36 by SIGTERM from outside after 2 min 10 s to"
        " 4 min: another restart is unlikely to help"
    )


def test_an_attempt_lasts_until_its_process_ended_and_not_until_that_was_seen() -> None:
    life = Life()
    life.started = life.now
    life.look()
    life.now += 12
    life.started, life.exited = None, (1, life.now - 9)
    life.look()
    (attempt,) = life.attempts
    assert (attempt.ended or 0.0) - attempt.started == 3


def test_a_loop_without_a_step_says_so() -> None:
    life = Life()
    for _ in range(3):
        life.attempt(code=2, seconds=5)
    assert attempt_ends(life.attempts).text == (
        "3 of the last 3 attempts ended before the first step with exit code 2 after about 5 s: "
        "another restart is unlikely to help"
    )


def test_restarts_of_the_exporter_lose_no_attempt_and_no_step(tmp_path: Path) -> None:
    life = Life(tmp_path)
    for _ in range(3):
        life.attempt(56, 57, code=128)
        life.tracker.save()
        life.restart_exporter()
    # it dies together with the run
    life.started = life.now
    life.look()
    life.tracker.record_line(
        LineEvent("grpo", "trainer", "trainer", "step", {"step": "57"}, life.now + 1)
    )
    life.tracker.save()
    life.now += 20
    life.started = life.now
    life.restart_exporter()
    life.look()
    assert [one.last_step for one in life.attempts] == [57, 57, 57, 57, None]
    assert [one.exit_code for one in life.attempts] == [128, 128, 128, None, None]


def test_the_file_is_bounded_and_not_written_with_every_step(tmp_path: Path) -> None:
    life = Life(tmp_path)
    file = tmp_path / "attempts.json"
    life.started = life.now
    life.look()
    written = file.stat().st_mtime_ns
    for step in range(100):
        life.now += 1
        life.tracker.record_line(
            LineEvent("grpo", "trainer", "trainer", "step", {"step": str(step)}, life.now)
        )
        life.look()
    assert file.stat().st_mtime_ns == written
    assert life.attempts[-1].last_step == 99
    for _ in range(3 * MAX_ATTEMPTS):
        life.attempt(5, code=1)
    for run in _names(2 * MAX_RUNS):
        trainer = WorkerLiveness(WorkerKey(run, "t"), life.now, False, life.now)
        life.log.record(run, trainer, life.tracker.state(run), "")
    kept = json.loads(file.read_text())
    assert len(kept) == MAX_RUNS
    assert max(map(len, kept.values())) <= MAX_ATTEMPTS


def _names(count: int) -> Iterator[str]:
    return (f"run-{number}" for number in range(count))
