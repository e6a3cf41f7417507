from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from trainwarden_exporter.entries.judging import REST, Entry, judge
from trainwarden_exporter.entries.naming import EntryName
from trainwarden_exporter.entries.walking import Stamp, Walk
from trainwarden_exporter.layouts.proofs import (
    FileSeen,
    FolderSeen,
    JsonStep,
    Marker,
    Proof,
    Renamed,
    Tracker,
)

DONE = Marker(("DONE",))
LAST = Marker(("DONE",), last=True)
NAME = EntryName("step_10", 10)


class Case:
    """One entry, judged whenever something has become of it."""

    def __init__(self, proof: Proof = DONE, name: EntryName = NAME) -> None:
        self.proof = proof
        self.name = name
        self.files: dict[str, FileSeen] = {}
        self.texts: dict[str, str] = {}
        self.tracker: tuple[str, float] | None = None
        self.stamp = Stamp(1, 1, 0)
        self.entry: Entry | None = None

    def write(self, moment: float, *names: str, size: int = 1) -> None:
        self.files |= {name: FileSeen(size, moment) for name in names}
        self.stamp = self.stamp._replace(modified_ns=int(moment * 1e9))

    def look(self, now: float, *, moving: bool = False) -> Entry:
        texts, modified = {}, {}
        if self.tracker is not None:
            texts, modified = {"latest.txt": self.tracker[0]}, {"latest.txt": self.tracker[1]}
        self.entry = judge(
            self.entry,
            self.name,
            Walk(self.stamp, dict(self.files), moving=moving),
            texts=self.texts,
            proof=self.proof,
            around=FolderSeen(texts, now, modified),
        )
        return self.entry


def seen(files: Mapping[str, tuple[int, float]], name: EntryName = NAME) -> Entry:
    case = Case(Renamed(), name)
    case.files = {path: FileSeen(*file) for path, file in files.items()}
    return case.look(1e9)


def test_it_is_complete_once_its_proof_holds() -> None:
    case = Case()
    case.write(100, "weights")
    assert not case.look(101).complete
    case.write(102, "DONE")
    entry = case.look(103)
    assert entry.complete
    assert (entry.completed, entry.size, entry.changed) == (102, 2, 102)


def test_one_under_a_partial_name_is_never_complete() -> None:
    case = Case(Renamed(), EntryName("tmp_step_10", 10, partial=True))
    case.write(100, "weights")
    assert not case.look(1_000).complete


def test_one_that_moves_while_it_is_looked_at_is_not_complete_this_time() -> None:
    case = Case()
    case.write(100, "weights", "DONE")
    assert not case.look(200, moving=True).complete
    assert case.look(210).complete


@pytest.mark.parametrize("proof", [DONE, LAST], ids=["marker", "last marker"])
def test_one_that_is_written_again_counts_once_it_is_whole_again_and_rests(proof: Proof) -> None:
    case = Case(proof)
    case.write(100, "weights", "optimizer", "DONE")
    assert case.look(200).complete
    case.write(300, "weights")
    assert not case.look(301).complete
    case.write(310, "optimizer", "DONE")
    assert not case.look(311).complete
    assert not case.look(311 + REST - 1).complete
    entry = case.look(311 + REST)
    assert entry.complete
    assert entry.completed == 310


@pytest.mark.parametrize(
    "proof", [DONE, LAST, JsonStep("DONE", "step"), Tracker("latest.txt")], ids=repr
)
def test_a_second_save_that_stops_halfway_never_counts(proof: Proof) -> None:
    case = Case(proof)
    case.texts, case.tracker = {"DONE": '{"step": 10}'}, ("10", 100)
    case.write(100, "weights", "optimizer", "DONE")
    assert case.look(200).complete
    case.write(300, "weights")
    for now in range(301, 10_000, 100):
        assert not case.look(now).complete


def test_one_that_is_being_removed_does_not_count_not_even_if_that_stands_still() -> None:
    case = Case()
    case.write(100, "weights", "optimizer", "DONE")
    assert case.look(200).complete
    del case.files["weights"]
    for now in range(201, 10_000, 100):
        assert not case.look(now).complete
    case.write(10_000, "weights", "DONE")  # saved anew, in the same folder
    case.look(10_001)
    assert case.look(10_001 + REST).complete


def test_what_is_added_to_a_complete_one_takes_nothing_from_it_nor_makes_it_younger() -> None:
    case = Case()
    case.write(100, "weights", "DONE")
    assert case.look(200).memory.steady
    case.write(5_000, "evaluation.json")
    entry = case.look(5_001)
    assert entry.complete
    assert entry.completed == 100
    assert entry.changed == 5_000


def test_the_last_files_of_a_save_may_come_after_its_proof() -> None:
    case = Case(Tracker("latest.txt"))
    case.tracker = ("10", 101)
    case.write(100, "weights")
    assert case.look(101.5).completed == 101
    case.write(103, "state.pt")
    entry = case.look(104)
    assert entry.complete
    assert entry.completed == 103
    assert not entry.memory.steady
    assert case.look(105).memory.steady


def test_files_that_are_meant_to_go_away_may() -> None:
    case = Case()
    case.write(100, "weights", "DONE", "weights.lock")
    assert case.look(101).complete
    del case.files["weights.lock"]
    assert case.look(102).complete


def test_another_one_of_the_same_name_is_judged_for_itself() -> None:
    case = Case(Renamed())
    case.write(100, "weights")
    assert case.look(200).complete
    case.write(300, "weights")
    case.stamp = case.stamp._replace(inode=2)  # renamed into its place
    entry = case.look(301)
    assert entry.complete
    assert entry.completed == 300


def test_after_a_resume_the_tracker_of_the_life_before_proves_nothing() -> None:
    case = Case(Tracker("latest.txt"), EntryName("step_600", 600))
    case.tracker = ("1000", 5_000)
    case.write(9_000, "weights")
    assert not case.look(9_001).complete
    case.tracker = ("600", 9_010)
    entry = case.look(9_011)
    assert entry.complete
    assert entry.completed == 9_010


def test_an_old_one_whose_files_are_not_kept_is_doubted_by_its_witnesses() -> None:
    case = Case()
    case.write(100, "weights", size=100)
    case.write(101, "config")
    case.write(102, "DONE")
    kept = case.look(200)
    assert set(kept.memory.witnesses) == {"weights", "DONE"}
    case.entry = replace(kept, files=None)
    assert case.look(300).complete
    case.entry = replace(kept, files=None)
    case.write(400, "weights")
    assert not case.look(401).complete


class TestOrder:
    def test_is_by_time_and_then_by_step(self) -> None:
        old = seen({"w": (10, 100.0)}, EntryName("step_1000", 1000))
        resumed = seen({"w": (10, 200.0)}, EntryName("step_600", 600))
        same = seen({"w": (10, 200.0)}, EntryName("step_601", 601))
        assert max(old, resumed, same, key=lambda entry: entry.order) is same
        assert resumed.follows(old)
        assert not old.follows(resumed)

    def test_is_not_moved_by_small_files_of_another_time(self) -> None:
        old = seen({"w": (1000, 100.0), "report.html": (10, 9_000.0)})
        new = seen({"w": (1000, 200.0), "tokenizer.json": (10, 1.0)})
        assert new.follows(old)
        assert (old.written, new.written) == (100, 200)

    def test_of_an_empty_one_is_by_step(self) -> None:
        newest = seen({"w": (1, 100.0)}, EntryName("step_5", 5))
        begun = seen({}, EntryName("step_6", 6))
        left_over = seen({}, EntryName("step_4", 4))
        assert begun.follows(newest)
        assert not left_over.follows(newest)
        assert left_over.follows(None)


def test_a_save_began_with_the_first_write_after_the_one_before() -> None:
    entry = seen({"tokenizer.json": (1, 5.0), "weights": (9, 210.0), "optimizer": (9, 230.0)})
    assert entry.began() == 5
    assert entry.began(after=200) == 210
    assert entry.began(after=500) == 5


def test_files_without_bytes_have_a_time_too() -> None:
    assert seen({"a": (0, 7.0), "b": (0, 8.0)}).written == 7
