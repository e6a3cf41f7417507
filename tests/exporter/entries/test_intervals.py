from __future__ import annotations

from trainwarden_exporter.entries.intervals import Intervals
from trainwarden_exporter.entries.judging import Entry, Memory
from trainwarden_exporter.entries.naming import EntryName
from trainwarden_exporter.entries.walking import Stamp


def entry(step: int, completed: float) -> Entry:
    name = EntryName(f"step_{step}", step)
    return Entry(name, True, completed, 1, completed, completed, Memory(Stamp(1, 1, 1), {}))


def test_three_are_needed() -> None:
    intervals = Intervals()
    assert intervals.after([]) is None
    assert intervals.after([entry(10, 0)]) is None
    assert intervals.after([entry(20, 600), entry(10, 0)]) is None
    assert intervals.after([entry(30, 1_200), entry(20, 600), entry(10, 0)]) == 600


def test_a_pause_does_not_move_the_median() -> None:
    moments = [0, 600, 1_200, 90_000, 90_600]
    seen = [entry(10 * step, moment) for step, moment in enumerate(moments)]
    assert Intervals().after(seen) == 600


def test_those_that_are_deleted_still_count() -> None:
    intervals = Intervals()
    for step in range(10):
        usual = intervals.after([entry(step, 300 * step)])
    assert usual == 300


def test_a_run_that_becomes_slower_is_understood() -> None:
    intervals = Intervals()
    moment = 0.0
    for step in range(40):
        moment += 100 if step < 20 else 1_000
        usual = intervals.after([entry(step, moment)])
    assert usual == 1_000


def test_a_step_that_is_not_above_the_one_before_tells_nothing() -> None:
    copied = [entry(1_000, 0), entry(200, 5), entry(100, 10)]
    assert Intervals().after(copied) is None
    resumed = [entry(900, 0), entry(1_000, 600), entry(500, 50_000), entry(600, 50_600)]
    assert Intervals().after(resumed) == 600
