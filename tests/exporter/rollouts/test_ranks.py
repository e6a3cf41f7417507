from __future__ import annotations

from collections.abc import Mapping

from trainwarden_exporter.entries.judging import Entry, Memory
from trainwarden_exporter.entries.naming import EntryName
from trainwarden_exporter.entries.walking import Stamp
from trainwarden_exporter.layouts.proofs import (
    EntrySeen,
    FileSeen,
    FolderSeen,
    JsonStep,
    Marker,
    Renamed,
    Tracker,
)
from trainwarden_exporter.rollouts.ranks import FIRST_REST, AllRanks, Ranks

RANK = r"rank_(?P<rank>\d+)\.(?:pt|bin)"


def files(*ranks: int, size: int = 1, moment: float = 100.0) -> dict[str, FileSeen]:
    return {f"rank_{rank}.pt": FileSeen(size, moment) for rank in ranks}


def entry(step: int, ranks: int) -> Entry:
    name = EntryName(f"step_{step}", step)
    return Entry(name, True, 1, 1, 1, 1, Memory(Stamp(1, 1, 1), {}), files(*range(ranks)))


def holds(ranks: Ranks, seen: Mapping[str, FileSeen], now: float = 1_000.0) -> bool:
    proof = AllRanks(ranks, Renamed())
    return proof.holds(EntrySeen("step_1", 1, seen, {}), FolderSeen({}, now))


def test_a_share_counts_once_it_is_there_and_not_empty() -> None:
    ranks = Ranks(RANK, None)
    seen = {**files(0, 1), **files(2, size=0), "rank_3.pt.tmp": FileSeen(5, 1)}
    assert ranks.of(seen) == {"0", "1"}
    assert ranks.of({"rank_0.pt": FileSeen(1, 1), "rank_0.bin": FileSeen(1, 1)}) == {"0"}


def test_as_many_are_needed_as_configured() -> None:
    ranks = Ranks(RANK, 4)
    assert not holds(ranks, files(0, 1, 3))
    assert holds(ranks, files(0, 1, 2, 3))
    assert not ranks.learn([entry(2, 2), entry(1, 2)])
    assert ranks.expected == 4


def test_as_many_are_needed_as_the_ones_before_had() -> None:
    ranks = Ranks(RANK, None)
    assert ranks.learn([entry(3, 1), entry(2, 4), entry(1, 4)])
    assert not ranks.learn([entry(3, 2), entry(2, 4), entry(1, 4)])
    assert ranks.expected == 4
    assert not holds(ranks, files(0, 1))
    assert holds(ranks, files(0, 1, 2, 3))


def test_a_run_that_goes_on_with_fewer_is_understood_after_some_steps() -> None:
    ranks = Ranks(RANK, None)
    seen = [entry(step, 4) for step in (3, 2, 1)]
    expected = []
    for step in (4, 5, 6, 7):
        seen.insert(0, entry(step, 2))
        ranks.learn(seen)
        expected.append(ranks.expected)
    assert expected == [4, 4, 4, 2]


def test_of_the_first_entry_of_all_those_count_that_are_there_when_it_rests() -> None:
    ranks = Ranks(RANK, None)
    ranks.learn([entry(1, 1)])
    assert ranks.expected is None
    assert not holds(ranks, files(0), now=100 + FIRST_REST - 1)
    assert holds(ranks, files(0, 1), now=100 + FIRST_REST)
    assert not holds(ranks, {}, now=1_000)


def test_nothing_is_learned_from_entries_without_a_share() -> None:
    ranks = Ranks(RANK, None)
    ranks.learn([entry(2, 0), entry(1, 0)])
    assert ranks.expected is None


def test_the_other_proof_is_asked_too() -> None:
    marked = AllRanks(Ranks(RANK, 1), Marker(("DONE",)))
    around = FolderSeen({"latest": "1"}, 1_000, {"latest": 500})
    assert not marked.holds(EntrySeen("step_1", 1, files(0), {}), around)
    whole = EntrySeen("step_1", 1, {**files(0), "DONE": FileSeen(0, 101)}, {})
    assert marked.holds(whole, around)
    assert marked.renewed(whole, around)
    tracked = AllRanks(Ranks(RANK, 1), Tracker("latest"))
    assert tracked.reads_around == ("latest",)
    assert tracked.completed(EntrySeen("step_1", 1, files(0), {}), around) == 500
    assert AllRanks(Ranks(RANK, 1), JsonStep("state.json", "step")).reads == ("state.json",)
