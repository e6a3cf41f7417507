"""Which lines with a step are those of the run, and what steps of an epoch add up to."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.logs.pattern_search import compile_patterns
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.progress.tracker import ProgressTracker

PATTERNS = get_framework("generic").default_lines
START = 1_000_000.0


class Run:
    """A run without a framework, from whose log the lines are read as they are printed."""

    def __init__(self, state_folder: Path | None = None) -> None:
        self.now = START
        lines = {("main", one.name): one for one in PATTERNS}
        self.tracker = ProgressTracker(
            [ProgressSpec("grpo", lines=lines)],
            state_folder=state_folder,
            now=lambda: self.now,
            elapsed=lambda: self.now,
        )

    def prints(self, *lines: str, seconds: float = 2.0) -> RunProgress:
        """Prints `lines` at once, after `seconds`."""
        self.now += seconds
        text = "".join(f"{line}\n" for line in lines).encode()
        for line in compile_patterns(PATTERNS).search(text, 0, len(text)):
            for match in line.matches:
                name, groups = match.pattern.name, match.groups
                self.tracker.record_line(
                    LineEvent("grpo", "main", "trainer", name, groups, self.now)
                )
        return self.tracker.state("grpo")


def steps(first: int, last: int, form: str = "step {} loss 0.5") -> list[str]:
    return [form.format(step) for step in range(first, last + 1)]


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ("step {} loss 0.5", ["completion:", "step 9000: add the numbers"]),
        ("step {} loss 0.5", ["step 4,500 | of the sample"]),
        ("step {}/300 loss 0.5", ["Sample:", "Step 1: compute 3+4", "Step 2: answer 7"]),
        ("step {}/300 loss 0.5", ["step 300/300 of the plan"]),
        ("step {}/300 loss 0.5", ["Step 1:", "Step 2:", "Step 3:", "Step 4:", "Step 5:"]),
        ("2026-11-29 23:18:34 INFO my.train: step {} loss 1", ["step 4500 loss 1"]),
    ],
)
def test_a_step_in_the_text_that_a_run_prints_is_none_of_the_run(own: str, text: list[str]) -> None:
    run = Run()
    for step in range(1, 31):
        state = run.prints(own.format(step), *(text if step % 7 == 0 else ()))
        assert state.step == step
    assert (state.resumes, state.repeated, state.finished) == (0, 0, False)
    assert state.attempt.number == 0


@pytest.mark.parametrize("line", ["step {} loss {} lr 3e-4", "step: {} - loss: {}"])
@pytest.mark.parametrize("value", ["-0.5", "nan", "NaN", "-inf"])
def test_a_sign_and_a_number_that_is_not_finite_are_no_other_form(line: str, value: str) -> None:
    run = Run()
    values = ["0.5"] * 5 + [value] * 5 + ["0.5"] * 5
    assert [run.prints(line.format(*one)).step for one in enumerate(values, 1)] == [*range(1, 16)]


def test_a_step_in_another_form_counts_where_it_fits() -> None:
    run = Run()
    for line in steps(1, 5):
        run.prints(line)
    assert run.prints("Step 6: train loss 0.5, val loss 0.6").step == 6
    assert run.prints("step 7 loss 0.5").step == 7


def test_another_form_shows_only_that_the_run_moves() -> None:
    run = Run()
    for line in steps(1, 5):
        run.prints(line)
    state = run.prints("step 40 of the evaluation", seconds=30)
    assert (state.step, state.last_sign_at) == (5, run.now)


def test_another_form_is_that_of_the_run_once_the_first_comes_no_longer() -> None:
    run = Run()
    for line in steps(1, 50):
        run.prints(line)
    found = [run.prints(line, seconds=20).step for line in steps(1, 5, "iter {}: loss 0.5")]
    assert found == [50, 50, 50, 4, 5]


def test_a_form_that_comes_rarely_is_not_replaced_between_two_reports() -> None:
    run = Run()
    for line in steps(11, 15):
        run.prints(line, seconds=600)
    assert {run.prints(line, seconds=60).step for line in steps(1, 8, "Step {}: add")} == {15}


def test_a_resume_in_the_same_form_goes_back_at_once() -> None:
    run = Run()
    for line in steps(1, 50):
        run.prints(line)
    state = run.prints("step 31 loss 0.5", seconds=20)
    assert (state.step, state.repeated) == (31, 20)


def test_the_form_outlasts_the_exporter(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for line in steps(1, 5):
        run.prints(line)
    run.tracker.save()
    again = Run(tmp_path)
    again.now = run.now
    assert again.prints("step 9000: add the numbers").step == 5


def test_steps_of_an_epoch_without_a_total_add_up() -> None:
    run = Run()
    for epoch in (1, 2, 3):
        for step in range(10, 91, 10):
            state = run.prints(f"Epoch {epoch}, Step {step}, Loss: 1.5")
            assert state.step == (epoch - 1) * 90 + step
    assert (state.resumes, state.attempt.number) == (0, 0)


def test_steps_of_the_run_beside_an_epoch_do_not_add_up() -> None:
    run = Run()
    for step in range(1, 40):
        state = run.prints(f"epoch: {step // 10} step: {step}")
        assert state.step == step


def test_steps_of_an_epoch_with_a_total_add_up() -> None:
    run = Run()
    for epoch in (1, 2):
        for step in range(1, 31):
            state = run.prints(f"Epoch [{epoch}/3], Step [{step}/30], Loss: 0.5")
    assert (state.step, state.resumes) == (60, 0)


def test_a_run_that_prints_in_bursts_reports_as_often_as_it_prints() -> None:
    bursts, each, whole, polled = Run(), Run(), Run(), Run()
    for epoch in range(6):
        bursts.prints(f"step {epoch * 100 + 100} loss 0.5", seconds=11)
        whole.prints(f"step {epoch + 1} loss 0.5", seconds=11)
        # each step; an exporter on a busy host reads three together
        polled.prints(f"step {epoch * 3 + 3} loss 0.5", seconds=2.1)
        for step in range(10):
            each.prints(f"step {epoch * 10 + step + 1} loss 0.5", seconds=0.5)
    found = [
        run.tracker.state("grpo").timing.report_seconds for run in (bursts, each, whole, polled)
    ]
    assert found == [11, None, None, None]
    watch = bursts.tracker.watch("grpo")
    assert (watch.since(), watch.report_seconds()) == (START, 11)


def test_a_bar_that_lightning_draws_each_fifteen_steps_shows_the_time_of_one() -> None:
    run = Run()
    for epoch in (0, 1):
        for step in range(15, 301, 15):
            bar = f"{100 * step // 300:3d}%|█████     | {step}/300 [00:15<00:20,  1.00it/s"
            state = run.prints(f"Epoch {epoch}: {bar}, v_num=0, loss=0.5]", seconds=15)
    assert (state.step, state.timing.typical, state.timing.report_seconds) == (600, 1, 15)


def test_a_resume_within_an_epoch_goes_back() -> None:
    run = Run()
    for epoch, last in ((1, 9), (2, 5)):
        for step in range(1, last + 1):
            run.prints(f"Epoch {epoch} | Step {step}")
    assert run.prints("Epoch 2 | Step 1", seconds=20).step == 10
