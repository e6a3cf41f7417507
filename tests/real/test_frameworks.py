"""Real frameworks, as their users run them: discover, check, an unedited watch, and what it shows.

`make test-real` installs the frameworks into a virtual environment of their own and writes what
each version showed to docs/real_versions.json, from which docs/frameworks.md is made.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from tests.real.cases import CASES, EVALUATION_SECONDS, Case
from tests.real.watching import PATIENCE, Program, Watched, record_seen, require, watched
from tests.waiting import until

LEAKED_BYTES = 200 << 20
SETTLE_SECONDS = 45
"""After which a file without changes counts as complete in every layout."""


@dataclass
class Run:
    """A program of a case, and what the stack shows of it."""

    program: Program
    watched: Watched

    @property
    def case(self) -> Case:
        return self.program.case

    def value(self, metric: str, **labels: str) -> float | None:
        return self.watched.value(self.program.name, metric, old_kernel=False, **labels)

    def firing(self, severity: str = ".*") -> set[str]:
        return self.watched.firing(self.program.name, severity)

    def seen(self, *what: str) -> None:
        record_seen(self.case, *what)

    def shows_progress(self) -> bool:
        """Whether the exporter shows the last step, or trials, within the lag of the case."""
        if self.case.counts == "trial":
            before = len(self.program.truth("step")) - self.case.lag
            return (self.value("log_matches_total", pattern="trial_finished") or 0) >= before
        before = self.program.written_step
        shown = self.value("training_step")
        after = self.program.last_step
        return shown is not None and before - self.case.lag <= shown <= after + 1

    def until(self, true: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Waits until `true` returns something true; fails with what the exporter shows."""
        try:
            until(true, seconds)
        except AssertionError:
            name = self.program.name
            kinds = ("worker_", "run_", "training_", "checkpoint_", "log_value")
            shown = [
                f"{metric} {kernel} {sample.labels} {sample.value}"
                for kernel in (False, True)
                for metric, samples in self.watched.samples(name, old_kernel=kernel).items()
                for sample in samples
                if metric.startswith(kinds)
            ]
            shown += [f"firing: {self.firing()}", self.program.log()]
            pytest.fail("\n".join(shown))

    def advance(self, steps: int) -> None:
        """Waits until the program has made some more steps."""
        self.program.wait_for("step", len(self.program.truth("step")) + steps)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.program)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    case: Case = request.param
    require(case)
    folder = tmp_path_factory.mktemp("real")
    program = Program(case, folder / case.program)
    program.folder.mkdir()
    try:
        program.start(case.steps)
        program.wait_for("step", 12)
        with watched([program], folder) as seen:
            yield Run(program, seen)
    finally:
        program.end()


def test_step_total_and_loss_are_those_of_the_program(run: Run) -> None:
    run.until(run.shows_progress)
    run.seen("live step" if run.case.counts == "step" else "trials")
    if run.case.shows_total:
        assert run.value("training_total_steps") == run.case.steps
        run.seen("total")
    if run.case.loss:

        def same() -> bool:
            shown = run.value(run.case.loss, name="loss")
            known = [event["loss"] for event in run.program.truth("loss")[-20:]]
            return shown is not None and any(math.isclose(shown, x, rel_tol=0.01) for x in known)

        run.until(same)
        run.seen("loss")
    assert run.firing("critical|warning") == set()


def test_a_long_evaluation_is_no_fault(run: Run) -> None:
    """The first that the exporter sees: its duration is not known yet."""
    before = time.time()
    with run.program.order("evaluate"):
        run.program.wait_for("slow_evaluation", 1)
        begun = time.monotonic()
        if run.case.shows_evaluations:
            run.until(lambda: run.value("training_phase", phase="evaluating") == 1)
            run.seen("phase of an evaluation")
        run.until(
            lambda: time.monotonic() - begun > EVALUATION_SECONDS, EVALUATION_SECONDS + PATIENCE
        )
        assert run.program.alive
        assert run.firing("critical") == set()
    run.advance(3)
    run.until(run.shows_progress)
    if run.case.shows_evaluations:
        run.until(lambda: run.value("training_phase", phase="training") == 1)
    fired = run.watched.fired(run.program.name, "critical", time.time() - before)
    assert fired == set()
    run.seen(f"evaluation of {EVALUATION_SECONDS:.0f} s")


def test_a_leak_is_in_the_memory_of_its_worker(run: Run) -> None:
    before = run.value("worker_memory_bytes")
    assert before is not None

    def leaked() -> float:
        return max((event["bytes"] for event in run.program.truth("leak")), default=0.0)

    with run.program.order("leak"):
        run.until(lambda: leaked() >= LEAKED_BYTES or not run.program.alive)
    run.advance(1)
    run.until(lambda: (run.value("worker_memory_bytes") or 0) - before > 0.8 * leaked())
    grown = (run.value("worker_memory_bytes") or 0) - before
    assert grown < 1.5 * leaked()
    run.seen("leak")


def test_a_hang_is_a_stall_and_ends_with_it(run: Run) -> None:
    """First of a stopped process, then of a rank that sleeps."""
    # Its pace must be known first: of a run that has only begun, no silence is a stall.
    run.until(lambda: (run.value("training_stall_limit_seconds") or math.inf) < PATIENCE)
    stopped = run.program.signal(signal.SIGSTOP)
    try:
        shown = lambda: (run.value("worker_process_states", state="stopped") or 0) > 0  # noqa: E731
        run.until(shown)
        run.until(lambda: "TrainingStepStalled" in run.firing())
    finally:
        assert stopped <= run.program.signal(signal.SIGCONT)
    run.until(lambda: "TrainingStepStalled" not in run.firing())
    run.seen("SIGSTOP")
    with run.program.order("hang"):
        run.program.wait_for("hang", 1)
        run.until(lambda: "TrainingStepStalled" in run.firing())
    run.until(lambda: "TrainingStepStalled" not in run.firing())
    run.seen("hang")


def test_a_loss_that_is_not_finite_is_critical(run: Run) -> None:
    if not run.case.loss or not run.case.survives_nan:
        pytest.skip("it logs no loss" if not run.case.loss else "it does not survive it")
    with run.program.order("nan"):
        run.until(
            lambda: (
                run.program.truth("loss")
                and not math.isfinite(run.program.truth("loss")[-1]["loss"] or math.nan)
            ),
            PATIENCE,
        )
        began = time.monotonic()
        run.until(lambda: "TrainingNotFinite" in run.firing("critical"))
        assert run.program.alive, run.program.log()
    assert time.monotonic() - began < PATIENCE
    run.seen("NaN")


def test_kill_in_mid_save_leaves_the_newest_complete_checkpoint(run: Run) -> None:
    if not run.case.saves:
        pytest.skip("it makes no checkpoints")
    with run.program.order("slow_save"):
        run.program.wait_for("half_saved", len(run.program.truth("half_saved")) + 1)
        saved = run.program.truth("saved")[-1]
        run.program.end()
    killed = time.monotonic()
    run.until(lambda: run.value("worker_processes") == 0)
    run.until(lambda: time.monotonic() - killed > SETTLE_SECONDS)
    if run.case.saves == "step":
        assert run.value("checkpoint_step") == saved["step"]
    else:
        shown = run.value("checkpoint_timestamp_seconds")
        assert shown is not None
        assert abs(shown - saved["time"]) < 10
    run.until(lambda: "TrainingWorkerGone" in run.firing("critical"))
    run.seen("checkpoint after kill -9")


def test_a_normal_end_is_not_missed_and_starts_nothing(run: Run) -> None:
    """Started again by hand from the newest checkpoint; on this kernel and on an old one."""
    if run.program.alive:
        run.program.end()
    if run.case.counts == "trial":
        run.program.start(len(run.program.truth("step")) + 8)
    else:
        saved = run.program.truth("saved")[-1]["step"] if run.case.saves else 0
        run.program.start(saved + 15)
    process = run.program.process
    assert process is not None
    run.until(lambda: not run.program.alive, 2 * PATIENCE)
    assert process.returncode == 0, run.program.log()
    name = run.program.name
    if run.case.counts == "step":
        run.until(run.shows_progress)
    run.until(lambda: run.value("run_workers_finished") == 1)
    run.until(lambda: run.firing("critical") <= {"TrainingNotFinite"})
    run.seen("normal end")
    value = run.watched.value
    run.until(lambda: value(name, "worker_processes", old_kernel=True) == 0)
    assert not value(name, "worker_missing_processes", old_kernel=True)
    if run.case.tells_end:
        run.until(lambda: value(name, "run_workers_finished", old_kernel=True) == 1)
    else:
        unknown = {"reason": "exit_unknown", "old_kernel": True}
        assert value(name, "worker_unconfirmed_missing_processes", **unknown)  # type: ignore[arg-type]
    run.seen("normal end on an old kernel")
