from __future__ import annotations

from trainwarden_exporter.entries.judging import Entry, Memory
from trainwarden_exporter.entries.known import OPEN, PILE, Known
from trainwarden_exporter.entries.naming import EntryName
from trainwarden_exporter.entries.pace import Pace
from trainwarden_exporter.entries.shelf import BOX
from trainwarden_exporter.entries.walking import Stamp

MANY = 2 * (2 * OPEN + PILE)


def entry(step: int, *, written: float) -> Entry:
    memory = Memory(Stamp(1, step, step), {}, steady=True)
    return Entry(EntryName(f"step_{step}", step), True, written, 1, written, written, memory)


def known(*entries: Entry) -> Known:
    found = Known(Pace(sleep=lambda _: None))
    for one in entries:
        assert found.get(one.name.text) is None
        found.put(one)
    return found


def test_all_have_their_turn_and_lie_packed_again_after_it() -> None:
    here = known(*(entry(step, written=float(step)) for step in range(MANY)))
    for _ in range(3):
        seen = set[int | None]()
        while len(seen) < MANY:
            seen |= {name.number for name in here.in_turn(BOX)}
            assert len(here.ranked()) <= 2 * OPEN + PILE + BOX
    assert len(here) == MANY


def test_of_those_of_one_moment_the_greatest_steps_are_the_newest() -> None:
    here = known(*(entry(step, written=5.0) for step in range(MANY)))
    for gone in range(MANY - 200, MANY):
        assert here.get(f"step_{gone}") is not None
        here.drop(f"step_{gone}")
    newest = here.reading(len(here)).complete
    assert [one.name.number for one in newest[:3]] == [MANY - 201, MANY - 202, MANY - 203]
