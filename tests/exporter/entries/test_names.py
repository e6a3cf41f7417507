from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainwarden_exporter.entries.names import NameSet, key_of

NAMES = st.sampled_from([f"step_{number}" for number in range(12)])
DEEDS = st.lists(st.tuples(st.sampled_from(["add", "discard"]), NAMES))


@given(first=st.sets(NAMES), deeds=DEEDS)
def test_it_holds_what_a_set_would(first: set[str], deeds: list[tuple[str, str]]) -> None:
    names, expected = NameSet(), set(first)
    names.fill(first)
    for deed, name in deeds:
        getattr(names, deed)(name)
        getattr(expected, deed)(name)
        assert len(names) == len(expected)
    for number in range(12):
        name = f"step_{number}"
        assert (name in names) == names.has(key_of(name)) == (name in expected)


def test_many_are_found_again() -> None:
    names = NameSet()
    names.fill(f"step_{number}" for number in range(20_000))
    assert len(names) == 20_000
    assert all(f"step_{number}" in names for number in range(20_000))
    assert not any(f"step_{number}" in names for number in range(20_000, 40_000))
