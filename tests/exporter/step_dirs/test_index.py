from __future__ import annotations

from trainwarden_exporter.step_dirs.completeness import ScanMemory, StepDir
from trainwarden_exporter.step_dirs.index import StepIndex
from trainwarden_exporter.step_dirs.names import StepDirName
from trainwarden_exporter.step_dirs.tree_walk import Stamp

MANY = 1_000


def entry(step: int, *, stable: bool = True) -> StepDir:
    memory = ScanMemory(Stamp(1, step, step), {}, stable=stable)
    moment = float(step)
    return StepDir(StepDirName(f"step_{step}", step), True, moment, 1, moment, moment, memory)


def known(*entries: StepDir) -> StepIndex:
    found = StepIndex()
    for one in entries:
        found.put(one)
    return found


def test_all_have_their_turn_again_and_again() -> None:
    here = known(*(entry(step) for step in range(MANY)))
    for _ in range(3):
        seen = [name.number for _ in range(10) for name in here.next_in_rotation(MANY // 10)]
        assert sorted(seen, key=lambda number: number or 0) == list(range(MANY))


def test_a_dropped_entry_has_no_turn() -> None:
    here = known(entry(1), entry(2), entry(3))
    assert [name.number for name in here.next_in_rotation(1)] == [1]
    here.drop("step_2")
    assert [name.number for name in here.next_in_rotation(2)] == [3]


def test_the_next_steps_are_the_lowest_steady_ones_above() -> None:
    here = known(entry(2), entry(9), entry(5), entry(4), entry(6, stable=False))
    above = here.above(StepDirName("step_3", 3), 2)
    assert [name.number for name in above] == [4, 5]
    assert here.above(StepDirName("step_9", 9), 9) == []
    assert len(here) == 5


def test_what_is_not_there_any_more_is_forgotten() -> None:
    here = known(*(entry(step) for step in range(1, 6)))
    here.retain({"step_2", "step_4", "step_5"})
    assert [one.name.number for one in here.newest_first()] == [5, 4, 2]
