"""The limits of runs that show few signs: checkpoints each hour, long trials."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.logs.line_parser import parse_timestamp
from trainwarden_exporter.processes.stacks.model import Movement
from trainwarden_exporter.progress.progress_files import (
    FileProgress,
    ProgressFileSpec,
    read_save_interval,
)
from trainwarden_exporter.progress.silence import suspicious_silence
from trainwarden_exporter.progress.stall_limits import STUCK_SECONDS, restart_limit, stall_limit
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.progress.tracker import ProgressTracker
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import progress_spec

MINUTE, HOUR = 60.0, 3600.0


class SlowRun:
    """A run of `framework` without a bar, and its trainer. Times count from the first moment."""

    def __init__(self, framework: str) -> None:
        config = RunConfig.model_validate({"name": "run", "framework": framework, "path": "/run"})
        self.spec = progress_spec(config)
        self.begin = self.now = 1_800_000_000.0
        self.tracker = ProgressTracker([self.spec], now=lambda: self.now, elapsed=lambda: self.now)

    def start_trainer(self, at: float = 0.0) -> None:
        self.tracker.record_trainer("run", self.begin + at, finished=False)

    def save(self, step: int, at: float) -> None:
        self.now = self.begin + at
        self.tracker.record_checkpoint("run", "default", step, self.now)

    def end_trial(self, number: int, at: float, *, fresh: bool = True) -> None:
        if fresh:
            self.now = self.begin + at
        groups = {"trial": str(number)}
        event = LineEvent(
            "run", "workers", "trainer", "trial_finished", groups, self.begin + at, fresh
        )
        self.tracker.record_line(event)

    def find_checkpoints(self, *records: tuple[int, float]) -> None:
        found = [(step, self.begin + at) for step, at in records]
        self.tracker.record_checkpoints("run", found)

    @property
    def state(self) -> RunProgress:
        ((_, state),) = self.tracker.states()
        return state

    @property
    def limit(self) -> float:
        limit = stall_limit(self.state, self.spec.limits)
        assert limit is not None
        return limit

    @property
    def restart_limit(self) -> float:
        return self.restart_limit_if(Movement.UNKNOWN)

    def restart_limit_if(self, movement: Movement) -> float:
        limit = restart_limit(
            self.state, self.spec.limits, evaluations_announced=False, movement=movement
        )
        assert limit is not None
        return limit


def test_a_run_that_saves_each_hour_is_not_stalled_after_its_first_save() -> None:
    run = SlowRun("trl")
    run.start_trainer()
    run.save(500, HOUR)
    assert run.limit > 95 * MINUTE
    assert run.restart_limit == math.inf
    for number in (2, 3, 4):
        run.save(500 * number, number * HOUR)
    assert run.limit == run.restart_limit == 5 * HOUR


def test_a_run_that_was_started_before_the_exporter_has_its_limit_at_once() -> None:
    run = SlowRun("trl")
    run.start_trainer(at=-5 * HOUR)
    run.save(2000, -HOUR)
    run.find_checkpoints(*((500 * hour, (hour - 5) * HOUR) for hour in (1, 2, 3, 4)))
    assert run.limit == run.restart_limit == 5 * HOUR


def test_checkpoints_of_an_earlier_attempt_only_lengthen_the_limit() -> None:
    """They may have been written by a short trial with other settings."""
    run = SlowRun("trl")
    run.start_trainer(at=-1.0)
    run.find_checkpoints(*((500 * hour, (hour - 9) * HOUR) for hour in (1, 2, 3, 4)))
    assert (run.limit, run.restart_limit) == (5 * HOUR, math.inf)
    run.find_checkpoints(*((10 * number, -100.0 + 5 * number) for number in range(1, 9)))
    assert (run.limit, run.restart_limit) == (30 * MINUTE, math.inf)


def test_deleted_checkpoints_between_two_kept_ones_do_not_count_as_silence() -> None:
    run = SlowRun("trl")
    run.start_trainer(at=-1.0)
    (state_file,) = (one for one in run.spec.files if one.file.name == "state")
    assert isinstance(state_file, ProgressFileSpec)
    kept = ((500, -12 * HOUR), (3000, -7 * HOUR))
    run.find_checkpoints(*kept)
    assert run.limit == 25 * HOUR
    old = run.begin - 7 * HOUR
    run.tracker.record_file(state_file, FileProgress(3000, 9000, old, save_interval=500))
    run.find_checkpoints(*kept)
    assert run.limit == 5 * HOUR


def test_the_save_interval_of_a_trainer_state_is_read(tmp_path: Path) -> None:
    (state_file,) = (one for one in SlowRun("trl").spec.files if one.file.name == "state")
    path = tmp_path / "trainer_state.json"
    path.write_text('{"global_step": 500, "max_steps": 9000, "save_steps": 250}')
    assert read_save_interval(path, state_file.file) == 250
    path.write_text('{"global_step": 500}')
    assert read_save_interval(path, state_file.file) is None


def test_a_resume_from_an_earlier_checkpoint_is_no_pace() -> None:
    run = SlowRun("trl")
    run.start_trainer(at=-1.0)
    run.find_checkpoints((1000, -20 * HOUR), (500, -3 * HOUR), (1000, -2 * HOUR))
    assert run.limit == 5 * HOUR


HUNG = ((50, 52.0), (100, 104.0), (150, 156.0 + HOUR), (200, 208.0 + 2 * HOUR))
"""Saves every 50 steps of a second each; in two of these intervals it stood still for an hour."""


@pytest.mark.parametrize("lines_first", [True, False])
@pytest.mark.parametrize("last", [200, 210], ids=["after a save", "between two"])
def test_a_run_that_hung_before_anybody_looked_is_healed_by_the_pace_of_its_steps(
    last: int, *, lines_first: bool
) -> None:
    """Its log has no times; its checkpoints are a minute or an hour apart."""
    run = SlowRun("trl")
    run.now = run.begin + HUNG[-1][1] + 3 * HOUR
    written = run.begin + HUNG[-1][1] + last - 200

    def record_checkpoint() -> None:
        step, at = HUNG[-1]
        run.tracker.record_checkpoint("run", "default", step, run.begin + at)

    if not lines_first:
        record_checkpoint()
    for step in range(1, last + 1):
        groups = {"step": str(step), "total": "500"}
        line = LineEvent("run", "trainer", "trainer", "bar", groups, written, False, is_bound=True)
        run.tracker.record_line(line)
    if lines_first:
        record_checkpoint()
    run.start_trainer(at=-1.0)
    run.find_checkpoints(*HUNG)
    assert run.restart_limit_if(Movement.STUCK) == STUCK_SECONDS
    assert run.restart_limit > 2 * HOUR
    assert run.restart_limit_if(Movement.MOVING) > 2 * HOUR
    assert suspicious_silence(run.state, run.spec, failed_at=None, now=written + 30) is not None


def test_a_run_that_shows_nothing_but_checkpoints_is_as_slow_as_these() -> None:
    run = SlowRun("trl")
    run.start_trainer()
    for step, at in HUNG:
        run.save(step, at)
    run.find_checkpoints(*HUNG)
    assert run.restart_limit_if(Movement.STUCK) > 2 * HOUR


def test_a_search_has_a_limit_from_its_first_trial_and_a_restart_limit_from_its_fourth() -> None:
    search = SlowRun("optuna")
    search.start_trainer()
    assert search.restart_limit == math.inf
    search.end_trial(0, HOUR)
    assert (search.limit, search.restart_limit) == (5 * HOUR, math.inf)
    for number in (1, 2, 3):
        search.end_trial(number, (1 + number) * HOUR)
    assert search.restart_limit == 25 * HOUR
    assert search.limit == 15 * HOUR


def test_trials_that_began_together_may_be_followed_by_the_silence_of_a_whole_trial() -> None:
    search = SlowRun("optuna")
    search.start_trainer()
    for number in range(16):
        search.end_trial(number, 35 * MINUTE + 5 * number)
    assert search.limit > 36 * MINUTE
    assert search.restart_limit > 36 * MINUTE


@pytest.mark.parametrize("lines_first", [True, False])
def test_a_search_that_goes_on_has_its_limit_from_the_trials_in_its_log(lines_first: bool) -> None:
    search = SlowRun("optuna")
    if not lines_first:
        search.start_trainer(at=-1.0)
    for number in range(9):
        search.end_trial(number, (number - 9) * HOUR, fresh=False)
    if lines_first:
        search.start_trainer(at=-1.0)
    assert search.limit == search.restart_limit == 5 * HOUR


def test_the_time_of_a_trial_in_a_journal_is_read() -> None:
    line = (
        b'{"op_code": 6, "worker_id": "0b0b4d2e-6c8e-4a58-8d22-0d2d1f1d7a51-140214522365760",'
        b' "trial_id": 12, "state": 1, "values": [0.25],'
        b' "datetime_complete": "2026-11-23T01:02:03.500000"}'
    )
    latest = 1_800_000_000.0
    later = line.replace(b"01:02:03.5", b"02:02:03.5")
    first, second = (parse_timestamp(one, latest=latest, fresh=False) for one in (line, later))
    assert first is not None
    assert second == first + 3600
