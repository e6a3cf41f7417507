from __future__ import annotations

from trainwarden_exporter.step_dirs.completeness import ScanMemory, StepDir
from trainwarden_exporter.step_dirs.names import StepDirName
from trainwarden_exporter.step_dirs.result import CompletionIntervals
from trainwarden_exporter.step_dirs.tree_walk import Stamp


def entry(step: int, completed_at: float) -> StepDir:
    name = StepDirName(f"step_{step}", step)
    return StepDir(
        name, True, completed_at, 1, completed_at, completed_at, ScanMemory(Stamp(1, 1, 1), {})
    )


def test_three_are_needed() -> None:
    intervals = CompletionIntervals()
    assert intervals.update([]) is None
    assert intervals.update([entry(10, 0)]) is None
    assert intervals.update([entry(20, 600), entry(10, 0)]) is None
    assert intervals.update([entry(30, 1_200), entry(20, 600), entry(10, 0)]) == 600


def test_a_pause_does_not_move_the_median() -> None:
    moments = [0, 600, 1_200, 90_000, 90_600]
    seen = [entry(10 * step, moment) for step, moment in enumerate(moments)]
    assert CompletionIntervals().update(seen) == 600


def test_deleted_entries_still_count() -> None:
    intervals = CompletionIntervals()
    for step in range(10):
        usual = intervals.update([entry(step, 300 * step)])
    assert usual == 300


def test_a_run_that_becomes_slower_is_understood() -> None:
    intervals = CompletionIntervals()
    moment = 0.0
    for step in range(40):
        moment += 100 if step < 20 else 1_000
        usual = intervals.update([entry(step, moment)])
    assert usual == 1_000


def test_a_step_that_is_not_above_the_one_before_tells_nothing() -> None:
    copied = [entry(1_000, 0), entry(200, 5), entry(100, 10)]
    assert CompletionIntervals().update(copied) is None
    resumed = [entry(900, 0), entry(1_000, 600), entry(500, 50_000), entry(600, 50_600)]
    assert CompletionIntervals().update(resumed) == 600
