"""Progress bars and epochs are counted as steps of the run, and other bars are not."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from tests.exporter.progress.bars import Bars

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.progress.trainings import counted_beside


def test_a_bar_reports_steps_and_the_total() -> None:
    run = Bars("bar")
    run.draw(0, 1, 2, 41, total=100)
    assert (run.state.step, run.state.total_steps, run.state.resumes) == (41, 100, 0)


def test_the_bar_of_an_evaluation_within_the_training_counts_for_nothing() -> None:
    run = Bars("bar")
    run.draw(0, 1, 2, total=100)
    run.draw(0, 6, 13, total=13)
    run.draw(3, total=100)
    assert (run.state.step, run.state.total_steps, run.state.resumes) == (3, 100, 0)


@pytest.mark.parametrize("batches", [13, 500])
def test_an_evaluation_before_the_training_leaves_no_steps(batches: int) -> None:
    run = Bars("bar")
    run.draw(0, 6, batches, total=batches)
    assert not run.state.finished
    run.draw(0, 1, 2, total=100)
    assert (run.state.step, run.state.total_steps, run.state.resumes) == (2, 100, 0)


def test_an_evaluation_after_the_training_begins_no_other_run() -> None:
    run = Bars("bar")
    run.draw(0, 99, 100, total=100)
    run.line("finished")
    run.draw(0, 6, 13, total=13)
    assert (run.state.step, run.state.finished, run.state.resumes) == (100, True, 0)


def test_a_total_from_elsewhere_decides_which_bar_is_that_of_the_run() -> None:
    run = Bars("bar", total=100)
    run.draw(0, 6, 13, total=13)
    before = run.state
    run.draw(0, 1, 100, total=100)
    assert before.step is None
    assert (run.state.step, run.state.finished) == (100, True)


def test_steps_of_epochs_are_added_up() -> None:
    run = Bars("epoch")
    for _ in range(3):
        run.draw(0, 1, 30, 60, total=60)
        run.draw(0, 10, 20, total=20)  # the evaluation
    assert (run.state.step, run.state.total_steps, run.state.resumes) == (180, None, 0)
    assert not run.state.finished


@pytest.mark.parametrize("counts", ["epoch", "line"])
def test_a_bar_of_something_else_ends_the_silence_while_it_counts_on(
    counts: Literal["epoch", "line"],
) -> None:
    run = Bars(counts)
    run.draw(*range(31), total=60)
    stood = run.state
    for step in (1, 2, 2, 3):
        run.now += 100
        run.line("other", step=str(step), total="9000")
    moved = run.state
    assert (moved.step, moved.total_steps, moved.phase) == (30, stood.total_steps, stood.phase)
    assert moved.last_sign_at == run.now
    assert moved.timing.typical == stood.timing.typical
    for _ in range(3):
        run.now += 100
        run.line("other", step="3", total="9000")  # only drawn again
    assert run.state.last_sign_at == moved.last_sign_at
    run.line("other", step="9000", total="9000")
    for step in (0, 7, 3, 50, 9000) * 3:  # bars of one length, drawn in turn, or a gauge
        run.now += 100
        run.line("other", step=str(step), total="9000")
    assert (run.state.last_sign_at or 0) == run.now - 1500
    run.draw(31, total=60)
    run.line("other", step="1", total="9000")  # of the next evaluation
    assert (run.state.step, run.state.last_sign_at) == (31, run.now)


@pytest.mark.parametrize("counts", ["epoch", "line"])
def test_a_second_training_with_fewer_steps_counts_from_its_start(
    counts: Literal["epoch", "line"],
) -> None:
    run = Bars(counts)
    run.draw(*range(61), total=60)
    for _ in range(4):
        run.draw(*range(41), total=40)
    state = run.state
    assert state.step == 160
    assert (state.epoch_total, state.resumes, state.finished) == (40, 0, False)
    assert run.now - (state.last_step_at or 0) <= 10


def test_a_training_counts_after_a_bar_of_more_items_that_were_prepared() -> None:
    run = Bars("epoch")
    for number in range(0, 20_001, 2000):
        run.now += 0.6
        run.line("bar", step=str(number), total="20000")
    run.draw(*range(201), total=200)
    run.draw(0, 10, 20, total=20)  # the evaluation
    run.draw(*range(51), total=200)
    assert (run.state.step, run.state.resumes) == (250, 0)


def test_a_training_that_resumes_counts_only_what_is_left(tmp_path: Path) -> None:
    run = Bars("epoch", trainers=("trainer",), state_folder=tmp_path)
    run.trainer(run.now)
    run.draw(*range(151), total=300)
    run.now += 60
    run.trainer(run.now)
    run.draw(*range(51), total=150)
    state = run.state
    assert state.step == 50
    assert (state.attempt.first_step, state.resumes, state.repeated) == (7, 0, 0)


@pytest.mark.parametrize("counts", ["bar", "epoch", "line"])
def test_a_smaller_count_shows_that_the_run_does_not_hang(
    counts: Literal["bar", "epoch", "line"],
) -> None:
    run = Bars(counts)
    run.draw(*range(51), total=60)
    timing = run.state.timing
    run.draw(*range(11), total=40)
    moved = run.now
    assert (run.state.last_sign_at, run.state.step) == (moved, 50)
    assert (run.state.timing.durations, run.state.timing.intervals) == (
        timing.durations,
        timing.intervals,
    )
    run.draw(10, 10, 10, total=40)  # only drawn again
    assert run.state.last_sign_at == moved
    run.draw(51, total=60)
    assert run.state.step == 51


@pytest.mark.parametrize("counts", ["bar", "epoch", "line"])
def test_what_counts_on_beside_the_steps_is_known_until_the_next_step(
    counts: Literal["bar", "epoch", "line"],
) -> None:
    run = Bars(counts)
    run.draw(*range(11), total=60)
    assert counted_beside(run.state) is None
    run.draw(*range(8), total=40)
    count = counted_beside(run.state)
    assert count is not None
    assert (count.drawn[-1], count.total) == (7, 40)
    run.draw(11, total=60)
    assert counted_beside(run.state) is None


def test_bars_that_are_drawn_again_in_turn_do_not_move() -> None:
    run = Bars("epoch")
    run.draw(*range(46), total=100)
    run.draw(0, 1, 2, total=10)
    run.draw(3, total=8)
    moved = run.now
    for _ in range(300):
        run.draw(2, total=10)
        run.draw(3, total=8)
        run.draw(45, total=100)
    assert (run.state.step, run.state.epoch_total, run.state.last_sign_at) == (45, 100, moved)


def test_bars_of_the_same_length_that_are_drawn_again_in_turn_do_not_move() -> None:
    run = Bars("bar")
    run.draw(*range(46), total=100)
    run.draw(*range(11), *range(4), 10, total=10)
    moved = run.now
    for _ in range(100):
        run.draw(10, 3, total=10)
    assert run.state.last_sign_at == moved


@pytest.mark.parametrize("counts", ["bar", "epoch", "line"])
@pytest.mark.parametrize("drawn", [(20, 17, 14, 11, 8, 5), (5, 20, 8, 1, 17, 14), tuple(range(12))])
def test_however_many_bars_of_one_smaller_total_are_drawn_in_turn_none_moves(
    counts: Literal["bar", "epoch", "line"], drawn: tuple[int, ...]
) -> None:
    """As of the workers of an evaluation that hangs; of the second, one worker has ended."""
    run = Bars(counts)
    run.draw(*range(46), total=100)
    run.draw(*drawn, total=20 if max(drawn) == 20 else 30)
    moved = run.now
    for _ in range(100):
        run.draw(*drawn, total=20 if max(drawn) == 20 else 30)
    assert (run.state.last_sign_at, run.state.step) == (moved, 45)


def test_a_longer_evaluation_that_begins_again_before_its_end_moves() -> None:
    run = Bars("epoch")
    run.draw(*range(46), total=100)
    for _ in range(3):
        run.draw(*range(20), total=40)
        assert run.state.last_sign_at == run.now


@pytest.mark.parametrize("counts", ["epoch", "line"])
def test_a_bar_that_is_only_drawn_again_is_no_training(counts: Literal["epoch", "line"]) -> None:
    run = Bars(counts)
    run.draw(*range(11), total=30)
    run.draw(0, 1, 2, total=10)
    run.draw(*[2] * 100, total=10)
    assert (run.state.step, run.state.epoch_total) == (10, 30)


def test_an_evaluation_that_begins_again_moves() -> None:
    run = Bars("bar")
    run.draw(*range(46), total=100)
    for _ in range(3):
        run.draw(*range(11), total=10)
        assert run.state.last_sign_at == run.now


def test_an_evaluation_that_takes_longer_than_its_epoch_is_no_training() -> None:
    run = Bars("epoch")
    for _ in range(3):
        run.draw(*range(31), total=30)
        run.draw(*range(20), *range(21), total=20)
    assert (run.state.step, run.state.resumes) == (90, 0)


def test_an_evaluation_of_several_epochs_is_undone_as_a_training() -> None:
    run, course = Bars("epoch"), []
    for epoch in range(1, 4):
        run.draw(*range(31), total=30)
        assert run.state.step == 30 * epoch
        for step in range(21):
            run.now += 30
            run.draw(step, total=20)
            assert run.state.last_sign_at == run.now
            course.append(run.state.step)
    run.draw(1, 2, total=30)
    state = run.state
    assert (state.step, state.epoch_total, state.resumes) == (92, 30, 0)
    assert state.timing.typical == 10
    assert course[21:] == [60] * 21 + [90] * 21


@pytest.mark.parametrize("batches", [100, 400])
def test_a_resume_that_validates_first_goes_on_from_the_step_before(
    tmp_path: Path, batches: int
) -> None:
    run = Bars("epoch", trainers=("trainer",), state_folder=tmp_path)
    run.trainer(run.now)
    run.draw(*range(151), total=500)
    run.now += 60
    run.trainer(run.now)
    run.draw(*range(batches + 1), total=batches)
    run.miss(1)
    run.draw(*range(101, 111), total=500)
    state = run.state
    assert (state.step, state.resumes, state.repeated) == (110, 1, 50)


def test_a_resume_that_validates_first_has_no_step_of_that() -> None:
    run = Bars("epoch", trainers=("trainer",))
    run.trainer(run.now)
    run.draw(*range(151), total=500)
    run.now += 60
    run.trainer(run.now)
    run.draw(*range(101), total=100)
    assert (run.state.step, run.state.attempt.previous_step) == (None, 150)


def test_an_epoch_that_begins_again_before_its_end_is_a_restart() -> None:
    run = Bars("epoch")
    run.draw(0, 1, 30, total=60)
    run.draw(0, 1, 2, total=60)
    assert (run.state.step, run.state.resumes) == (2, 1)


def test_the_total_in_lines_is_that_of_the_run_until_their_count_begins_again() -> None:
    run = Bars("line")
    run.draw(1, 121, total=300)
    assert (run.state.step, run.state.total_steps) == (121, 300)
    run.draw(300, total=300)
    assert (run.state.total_steps, run.state.finished) == (300, False)
    run.draw(1, total=300)
    assert (run.state.step, run.state.total_steps, run.state.resumes) == (301, None, 0)


def test_the_total_in_lines_is_that_of_an_epoch_where_the_run_reports_epochs() -> None:
    run = Bars("line")
    run.draw(1, total=300)
    run.line("epoch", epoch="1")
    assert (run.state.step, run.state.total_steps) == (1, None)
    run.draw(2, total=300)
    assert run.state.total_steps is None


@pytest.fixture(params=[("trainer",), ()])
def trainers(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """With a trainer whose processes are seen, and without one."""
    named: tuple[str, ...] = request.param
    return named


@pytest.mark.parametrize("counts", ["line", "epoch"])
def test_a_run_that_resumes_while_no_exporter_watched_has_begun_no_epoch(
    tmp_path: Path, counts: Literal["line", "epoch"], trainers: tuple[str, ...]
) -> None:
    """Its first lines are read before its process is seen."""
    run = Bars(counts, trainers=trainers, state_folder=tmp_path)
    run.draw(1, 68, 69, total=5000)
    run.miss(60)
    if trainers:
        run.trainer(None)
    run.draw(61, 62, total=5000)
    if trainers:
        run.trainer(run.now - 15)
    run.draw(63, total=5000)
    assert (run.state.step, run.state.resumes, run.state.repeated) == (63, 1, 9)


def test_a_process_that_goes_on_while_no_exporter_watched_has_begun_an_epoch(
    tmp_path: Path,
) -> None:
    run = Bars("epoch", trainers=("trainer",), state_folder=tmp_path)
    started = run.now
    run.draw(1, 30, 50, total=60)
    run.miss(60)
    run.trainer(started)
    run.draw(10, total=60)
    assert (run.state.step, run.state.resumes) == (70, 0)


def test_an_epoch_goes_on_where_no_process_is_seen(tmp_path: Path) -> None:
    run = Bars("epoch", state_folder=tmp_path)
    run.draw(1, 60, 1, 50, total=60)
    run.miss(60)
    run.draw(10, total=60)
    assert (run.state.step, run.state.resumes) == (130, 0)


def test_a_count_of_epochs_that_begins_again_waits_for_the_process(tmp_path: Path) -> None:
    run = Bars("epoch", trainers=("trainer",), state_folder=tmp_path)
    started = run.now
    run.draw(1, 60, 1, 50, total=60)
    run.miss(60)
    run.draw(10, total=60)
    assert run.state.step == 110
    run.trainer(started)
    run.draw(11, total=60)
    assert (run.state.step, run.state.resumes) == (131, 0)


def test_a_new_process_in_a_later_epoch_makes_none(tmp_path: Path) -> None:
    run = Bars("epoch", trainers=("trainer",), state_folder=tmp_path)
    run.draw(1, 60, 1, 50, total=60)
    run.miss(60)
    run.draw(10, total=60)
    run.trainer(run.now - 15)
    run.draw(11, total=60)
    assert run.state.step == 11


@pytest.mark.parametrize("total", [{}, {"total": "30"}])
def test_the_lines_of_a_log_that_was_there_before_the_exporter_are_all_counted(
    total: dict[str, str],
) -> None:
    run = Bars("line")
    for step in range(1, 31):
        run.line("bar", fresh=False, step=str(step), **total)
    assert run.state.step == 30
    run.now += 10
    run.line("bar", step="31")
    for step in (1, 31, 32):  # read again
        run.line("bar", fresh=False, step=str(step))
    assert (run.state.step, run.state.resumes) == (31, 0)


@pytest.mark.parametrize("total", [None, 1000])
@pytest.mark.parametrize("of", [{}, {"total": "1000"}])
@pytest.mark.parametrize("there", [0, 10])
def test_a_complete_run_that_was_in_the_log_before_adds_nothing_to_the_next_one(
    there: int, of: dict[str, str], total: int | None
) -> None:
    run = Bars("line", total)
    for step in (*range(1, 1001), *range(1, there + 1)):
        run.line("bar", fresh=False, step=str(step), **of)
    assert (run.state.step, run.state.finished) == (there or 1000, not there and total == 1000)
    for step in range(there + 1, there + 91):
        run.now += 10
        run.line("bar", fresh=True, step=str(step), **of)
    state = run.state
    assert (state.step, state.phase, state.resumes) == (there + 90, Phase.TRAINING, 0)
    run.now += 10
    run.line("bar", fresh=True, step=str(there + 51), **of)
    run.trainer(run.now - 1)
    assert run.state.repeated == 40


def test_lines_that_are_read_again_after_each_start_of_the_exporter_change_nothing(
    tmp_path: Path,
) -> None:
    run, course = Bars("line", 1000, state_folder=tmp_path), []
    for _ in range(2):
        for step in range(1, 1001):
            run.line("bar", fresh=False, step=str(step), total="1000")
        state = run.state
        course.append((state.step, state.phase, state.resumes, state.repeated))
        run.miss(60)
    assert course == [(1000, Phase.FINISHED, 0, 0)] * 2


def test_lines_that_are_read_again_leave_the_pace(tmp_path: Path) -> None:
    run = Bars("line", trainers=("trainer",), state_folder=tmp_path)
    run.trainer(run.now)
    for step in range(1, 21):
        run.now += 10
        run.line("bar", step=str(step))
    started = run.now + 30
    for _ in range(2):
        run.miss(60)
        run.trainer(started)
        for step in range(11, 16):
            run.line("bar", fresh=False, step=str(step))
    assert (run.state.step, run.state.timing.typical) == (15, 10.0)
