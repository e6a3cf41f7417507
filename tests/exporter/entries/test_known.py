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
