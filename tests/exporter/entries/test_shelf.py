from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from trainwarden_exporter.entries.judging import Doubt, Entry, Memory
from trainwarden_exporter.entries.names import NameSet
from trainwarden_exporter.entries.naming import EntryName
from trainwarden_exporter.entries.pace import Pace
from trainwarden_exporter.entries.shelf import NONE, Shelf
from trainwarden_exporter.entries.walking import Stamp
from trainwarden_exporter.layouts.proofs import FileSeen

MOMENTS = st.floats(0, 4e9)
TEXTS = st.text(min_size=1, max_size=20) | st.just("step_\udcff")
STAMPS = st.builds(Stamp, *[st.integers(0, 1 << 63)] * 3)
FILES = st.builds(FileSeen, st.integers(0, 1 << 50), MOMENTS)
MEMORIES = st.builds(
    Memory,
    STAMPS,
    st.dictionaries(st.text(max_size=9), FILES, max_size=3),
    st.dictionaries(TEXTS, STAMPS, max_size=2),
    st.none() | MOMENTS,
    st.none() | st.builds(Doubt, MOMENTS, st.booleans()),
    st.booleans(),
)
ENTRIES = st.builds(
    Entry,
    st.builds(EntryName, TEXTS, st.none() | st.integers(0, 1 << 70), st.booleans()),
    st.booleans(),
    MOMENTS,
    st.integers(0, 1 << 60),
    MOMENTS,
    MOMENTS,
    MEMORIES,
)


def entry(step: int, *, complete: bool = True, written: float | None = None) -> Entry:
    moment = float(step if written is None else written)
    memory = Memory(Stamp(1, step, step), {"": FileSeen(1, moment)}, steady=complete)
    name = EntryName(f"step_{step}", step)
    return Entry(name, complete, moment if complete else 0.0, 1, moment, moment, memory)


def shelf_of(*boxes: Sequence[Entry]) -> Shelf:
    shelf = Shelf(Pace(sleep=lambda _: None))
    for box in boxes:
        shelf.put(box)
    return shelf


def steps(entries: Sequence[Entry]) -> list[int | None]:
    return [one.name.number for one in entries]


@given(entries=st.lists(ENTRIES, min_size=1, max_size=4, unique_by=lambda one: one.name.text))
def test_what_is_taken_is_what_was_put_away(entries: list[Entry]) -> None:
    shelf = shelf_of(entries)
    assert shelf.first() == entries
    assert (len(shelf), shelf.complete, shelf.first()) == (0, 0, [])


def test_one_is_taken_from_among_the_others_which_stay_in_their_order() -> None:
    shelf = shelf_of([entry(1), entry(2)], [entry(3, complete=False)], [entry(4)])
    assert (len(shelf), shelf.complete) == (4, 3)
    assert shelf.take("step_2") == entry(2)
    assert shelf.take("step_2") is None
    assert shelf.take("step_3") == entry(3, complete=False)
    assert ("step_1" in shelf, "step_2" in shelf) == (True, False)
    assert (len(shelf), shelf.complete) == (2, 2)
    assert [steps(shelf.first()) for _ in range(3)] == [[1], [4], []]


def test_the_box_with_the_newest_is_taken_if_it_is_newer_than_what_is_known() -> None:
    shelf = shelf_of([entry(5), entry(30, complete=False)], [entry(20), entry(7)])
    assert shelf.newer(entry(20).order, complete=True) == []
    assert steps(shelf.newer(entry(19).order, complete=True)) == [20, 7]
    assert steps(shelf.newer(NONE, complete=True)) == [5, 30]
    assert shelf.newer(NONE, complete=True) == []


def test_of_those_of_one_moment_the_greater_step_is_newer() -> None:
    at_once = [entry(step, written=5.0) for step in (8, 9)]
    shelf = shelf_of(at_once[:1], at_once[1:])
    assert steps(shelf.newer(at_once[0].order, complete=True)) == [9]
    assert shelf.newer(at_once[0].order, complete=True) == []


def test_of_what_is_incomplete_nothing_complete_is_brought() -> None:
    shelf = shelf_of([entry(5)], [entry(6)])
    assert shelf.newer(NONE, complete=False) == []


def test_the_next_steps_are_told_and_stay() -> None:
    shelf = shelf_of(
        [entry(2), entry(9), entry(5)], [entry(4), entry(6, complete=False)], [entry(1)]
    )
    assert [name.number for name in shelf.above((3, "step_3"), 2)] == [4, 5]
    assert [name.number for name in shelf.above((4, "step_4"), 9)] == [5, 9]
    assert shelf.above((9, "step_9"), 9) == []
    assert len(shelf) == 6


def test_what_is_not_there_any_more_is_forgotten() -> None:
    shelf = shelf_of([entry(1), entry(2)], [entry(3)], [entry(4), entry(5)])
    names = NameSet()
    names.fill(["step_2", "step_4", "step_5"])
    shelf.keep(names)
    assert [steps(shelf.first()) for _ in range(3)] == [[2], [4, 5], []]
