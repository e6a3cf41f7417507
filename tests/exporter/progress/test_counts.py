"""Progress bars and epochs are counted as steps of the run, and other bars are not."""

from __future__ import annotations

from typing import Literal

import pytest

from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.progress.tracker import ProgressTracker


class Bars:
    """A run whose steps are counted by bars, ten seconds apart."""

    def __init__(self, counts: Literal["bar", "epoch", "line"], total: int | None = None) -> None:
        lines = (
            LinePattern("bar", "…", phase=Phase.TRAINING, total_of=counts),
            LinePattern("finished", "…", phase=Phase.FINISHED),
            LinePattern("epoch", "…", advances=True),
        )
        self.now = 1_000_000.0
        self.tracker = ProgressTracker(
            [ProgressSpec("run", lines={("log", one.name): one for one in lines}, total=total)],
            now=lambda: self.now,
            elapsed=lambda: self.now,
        )

    def draw(self, *steps: int, total: int) -> None:
        for step in steps:
            self.now += 10
            self.line("bar", step=str(step), total=str(total))

    def line(self, pattern: str, **groups: str) -> None:
        self.tracker.record_line(
            LineEvent("run", "log", "trainer", pattern, groups, self.now, fresh=True)
        )

    @property
    def state(self) -> RunProgress:
        ((_, state),) = self.tracker.states()
        return state


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
