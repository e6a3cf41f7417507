"""Of several counts that of the training is counted: a second one, or the next of a script."""

from __future__ import annotations

from typing import Literal

import pytest
from tests.exporter.progress.bars import Bars


@pytest.mark.parametrize("counts", ["epoch", "line"])
def test_a_second_training_at_the_pace_of_the_first_is_counted(
    counts: Literal["epoch", "line"],
) -> None:
    run = Bars(counts)
    run.draw(*range(61), total=60)
    run.draw(*range(21), total=40)
    assert (run.state.step, run.state.resumes, run.state.epoch_total) == (20, 0, 40)
    run.tracker.record_checkpoint("run", "default", 60, run.now - 210)
    run.draw(*range(21, 41), total=40)
    assert (run.state.step, run.state.resumes, run.state.repeated) == (40, 0, 0)


def test_a_count_at_another_pace_or_within_an_epoch_is_no_second_training() -> None:
    run = Bars("epoch")
    run.draw(*range(61), total=60)
    for step in range(21):
        run.now += 20
        run.line("bar", step=str(step), total="40")
    assert run.state.step == 60
    run = Bars("epoch")
    run.draw(*range(31), total=60)
    run.draw(*range(21), total=40)
    assert run.state.step == 30


def test_an_evaluation_at_the_pace_of_the_training_is_no_training_once_that_goes_on() -> None:
    run, course = Bars("epoch"), []
    for _ in range(3):
        run.draw(*range(61), total=60)
        run.draw(*range(21), total=20)
        course.append(run.state.step)
    run.draw(1, total=60)
    state = run.state
    assert (state.step, state.resumes, state.repeated) == (181, 0, 0)
    assert course[1:] == [120, 180]


def test_an_evaluation_of_more_steps_than_an_epoch_is_none_either() -> None:
    run, course = Bars("epoch"), []
    for _ in range(3):
        run.draw(*range(61), total=60)
        for step in range(201):
            run.now += 0.5
            run.line("bar", step=str(step), total="200")
        course.append(run.state.step)
    run.draw(1, total=60)
    assert (run.state.step, run.state.resumes) == (181, 0)
    assert course[1:] == [120, 180]


def test_a_short_count_before_the_training_does_not_become_it_again() -> None:
    run = Bars("epoch")
    run.draw(*range(3), total=2)
    run.draw(*range(61), total=60)
    run.draw(*range(3), total=2)
    run.draw(*range(11), total=60)
    assert (run.state.step, run.state.epoch_total) == (70, 60)


@pytest.mark.parametrize("ended", [True, False])
def test_the_next_training_of_a_script_loses_no_steps(*, ended: bool) -> None:
    run = Bars("bar", trainers=("trainer",))
    run.trainer(run.now)
    for number in range(5):
        run.draw(*range(41), total=40)
        assert run.state.step == 40
        if ended:
            run.line("finished")
            assert run.state.finished
        run.trainer(run.now - 410 * (number + 1))
    state = run.state
    assert (state.total_steps, state.resumes, state.repeated, state.lost) == (40, 0, 0, 0)
    run.draw(0, 1, 2, total=40)
    assert (run.state.step, run.state.finished) == (2, False)


def test_a_training_with_another_total_after_the_end_of_the_first_is_counted() -> None:
    run = Bars("bar", trainers=("trainer",))
    run.draw(*range(61), total=60)
    run.line("epoch", epoch="1")
    run.line("finished")
    run.line("bar", step="0", total="40")  # all read at once
    run.draw(*range(1, 21), total=40)
    assert (run.state.step, run.state.finished) == (60, True)  # as an evaluation at the same pace
    run.line("epoch", epoch="1")
    run.draw(*range(21, 31), total=40)
    assert (run.state.step, run.state.total_steps, run.state.finished) == (30, 40, False)


def steps(run: Bars, *numbers: int) -> None:
    for number in numbers:
        run.now += 10
        run.line("step", step=str(number))


@pytest.mark.parametrize("known_first", [True, False])
def test_a_process_that_counts_from_the_start_again_has_lost_no_steps(*, known_first: bool) -> None:
    run = Bars("bar", trainers=("trainer",))
    started = run.now
    if known_first:
        run.trainer(started)
    else:
        steps(run, *range(1, 31), 1)
        run.tracker.record_checkpoint("run", "default", 30, run.now - 10)
        run.trainer(started)
        steps(run, *range(2, 31))
    for _ in range(5):
        steps(run, *range(1, 31))
        run.tracker.record_checkpoint("run", "default", 30, run.now)
        run.trainer(started)
    state = run.state
    assert (state.step, state.resumes, state.repeated) == (30, 0, 0)
    assert state.timing.typical == 10
    steps(run, 1)
    run.tracker.record_checkpoint("run", "default", 30, run.now - 10)
    run.now += 100
    steps(run, 2)
    assert (run.state.step, run.state.repeated) == (2, 0)


def test_a_process_that_counts_from_the_start_again_after_an_error_has_lost_its_steps() -> None:
    run = Bars("bar", trainers=("trainer",))
    run.trainer(run.now)
    steps(run, *range(1, 31))
    run.line("error")
    steps(run, 1, 2)
    assert (run.state.step, run.state.resumes, run.state.repeated) == (2, 1, 30)


def test_of_several_trainers_nobody_knows_which_one_counts_again() -> None:
    run = Bars("bar", trainers=("trainer", "other"))
    run.tracker.record_trainer_restart("run", run.now)
    steps(run, *range(1, 31), 1, 2)
    assert (run.state.step, run.state.resumes, run.state.repeated) == (2, 1, 30)


def test_a_process_that_goes_back_but_not_to_the_start_has_lost_its_steps() -> None:
    run = Bars("bar", trainers=("trainer",))
    run.trainer(run.now)
    steps(run, *range(1, 31))
    steps(run, 21, 22)
    assert (run.state.resumes, run.state.repeated) == (1, 10)


@pytest.mark.parametrize("known_first", [True, False])
def test_a_new_process_that_counts_from_the_start_has_lost_the_steps_before(
    *, known_first: bool
) -> None:
    """Its first lines may be read before its process is seen."""
    run = Bars("bar", trainers=("trainer",))
    run.trainer(run.now)
    steps(run, *range(1, 31))
    restarted = run.now + 5
    if known_first:
        run.now += 6
        run.trainer(restarted)
    steps(run, 1, 2)
    run.trainer(restarted)
    steps(run, 3)
    assert (run.state.step, run.state.resumes, run.state.repeated) == (3, 1, 30)


def test_complete_bars_that_are_drawn_in_turn_with_that_of_the_epoch_count_once() -> None:
    run = Bars("epoch")
    run.draw(*range(61), total=60)
    for epoch in (2, 3):
        for step in range(61):
            run.now += 10
            for _ in range(5):
                for number in (*[60] * (epoch - 1), step):
                    run.line("bar", step=str(number), total="60")
            assert (run.state.step or 0) - 60 * (epoch - 1) - step in (0, 1)
    assert (run.state.step, run.state.resumes) == (180, 0)


def test_epochs_with_few_draws_are_counted() -> None:
    run = Bars("epoch")
    run.draw(*range(61), total=60)
    for _ in range(3):
        run.draw(0, total=60)
        run.now += 190
        run.draw(20, total=60)
        run.now += 390
        run.draw(60, total=60)
    assert run.state.step == 240
