from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from trainwarden_exporter.frameworks.completeness_rules import (
    CompletenessRule,
    FileInfo,
    FolderContent,
    JsonStepRule,
    MarkerRule,
    RenamedRule,
    TrackerRule,
)
from trainwarden_exporter.step_dirs.completeness import QUIET_SECONDS, StepDir, assess_step_dir
from trainwarden_exporter.step_dirs.names import StepDirName
from trainwarden_exporter.step_dirs.tree_walk import Stamp, WalkResult

DONE = MarkerRule(("DONE",))
LAST = MarkerRule(("DONE",), last=True)
NAME = StepDirName("step_10", 10)


class Case:
    """One entry, judged whenever something has become of it."""

    def __init__(self, rule: CompletenessRule = DONE, name: StepDirName = NAME) -> None:
        self.rule = rule
        self.name = name
        self.files: dict[str, FileInfo] = {}
        self.texts: dict[str, str] = {}
        self.tracker: tuple[str, float] | None = None
        self.stamp = Stamp(1, 1, 0)
        self.entry: StepDir | None = None

    def write(self, moment: float, *names: str, size: int = 1) -> None:
        self.files |= {name: FileInfo(size, moment) for name in names}
        self.stamp = self.stamp._replace(modified_ns=int(moment * 1e9))

    def scan(self, now: float, *, changed_during_walk: bool = False) -> StepDir:
        texts, modified = {}, {}
        if self.tracker is not None:
            texts, modified = {"latest.txt": self.tracker[0]}, {"latest.txt": self.tracker[1]}
        self.entry = assess_step_dir(
            self.entry,
            self.name,
            WalkResult(self.stamp, dict(self.files), changed_during_walk=changed_during_walk),
            texts=self.texts,
            rule=self.rule,
            folder_content=FolderContent(texts, now, modified),
        )
        return self.entry


def seen(files: Mapping[str, tuple[int, float]], name: StepDirName = NAME) -> StepDir:
    case = Case(RenamedRule(), name)
    case.files = {path: FileInfo(*file) for path, file in files.items()}
    return case.scan(1e9)


def test_it_is_complete_once_its_proof_holds() -> None:
    case = Case()
    case.write(100, "weights")
    assert not case.scan(101).complete
    case.write(102, "DONE")
    entry = case.scan(103)
    assert entry.complete
    assert (entry.completed_at, entry.size, entry.changed_at) == (102, 2, 102)


def test_one_under_a_partial_name_is_never_complete() -> None:
    case = Case(RenamedRule(), StepDirName("tmp_step_10", 10, partial=True))
    case.write(100, "weights")
    assert not case.scan(1_000).complete


def test_an_entry_that_changes_during_the_check_is_not_complete_this_time() -> None:
    case = Case()
    case.write(100, "weights", "DONE")
    assert not case.scan(200, changed_during_walk=True).complete
    assert case.scan(210).complete


@pytest.mark.parametrize("rule", [DONE, LAST], ids=["marker", "last marker"])
def test_a_rewritten_entry_counts_once_it_is_whole_again_and_rests(
    rule: CompletenessRule,
) -> None:
    case = Case(rule)
    case.write(100, "weights", "optimizer", "DONE")
    assert case.scan(200).complete
    case.write(300, "weights")
    assert not case.scan(301).complete
    case.write(310, "optimizer", "DONE")
    assert not case.scan(311).complete
    assert not case.scan(311 + QUIET_SECONDS - 1).complete
    entry = case.scan(311 + QUIET_SECONDS)
    assert entry.complete
    assert entry.completed_at == 310


@pytest.mark.parametrize(
    "rule", [DONE, LAST, JsonStepRule("DONE", "step"), TrackerRule("latest.txt")], ids=repr
)
def test_a_second_save_that_stops_halfway_never_counts(rule: CompletenessRule) -> None:
    case = Case(rule)
    case.texts, case.tracker = {"DONE": '{"step": 10}'}, ("10", 100)
    case.write(100, "weights", "optimizer", "DONE")
    assert case.scan(200).complete
    case.write(300, "weights")
    for now in range(301, 10_000, 100):
        assert not case.scan(now).complete


def test_an_entry_being_removed_does_not_count_not_even_if_the_removal_stalls() -> None:
    case = Case()
    case.write(100, "weights", "optimizer", "DONE")
    assert case.scan(200).complete
    del case.files["weights"]
    for now in range(201, 10_000, 100):
        assert not case.scan(now).complete
    case.write(10_000, "weights", "DONE")  # saved again, in the same folder
    case.scan(10_001)
    assert case.scan(10_001 + QUIET_SECONDS).complete


def test_what_is_added_to_a_complete_one_takes_nothing_from_it_nor_makes_it_younger() -> None:
    case = Case()
    case.write(100, "weights", "DONE")
    assert case.scan(200).memory.stable
    case.write(5_000, "evaluation.json")
    entry = case.scan(5_001)
    assert entry.complete
    assert entry.completed_at == 100
    assert entry.changed_at == 5_000


def test_the_last_files_of_a_save_may_come_after_its_proof() -> None:
    case = Case(TrackerRule("latest.txt"))
    case.tracker = ("10", 101)
    case.write(100, "weights")
    assert case.scan(101.5).completed_at == 101
    case.write(103, "state.pt")
    entry = case.scan(104)
    assert entry.complete
    assert entry.completed_at == 103
    assert not entry.memory.stable
    assert case.scan(105).memory.stable


def test_files_that_are_meant_to_go_away_may() -> None:
    case = Case()
    case.write(100, "weights", "DONE", "weights.lock")
    assert case.scan(101).complete
    del case.files["weights.lock"]
    assert case.scan(102).complete


def test_another_one_of_the_same_name_is_judged_for_itself() -> None:
    case = Case(RenamedRule())
    case.write(100, "weights")
    assert case.scan(200).complete
    case.write(300, "weights")
    case.stamp = case.stamp._replace(inode=2)  # renamed into its place
    entry = case.scan(301)
    assert entry.complete
    assert entry.completed_at == 300


def test_after_a_resume_the_tracker_of_the_life_before_proves_nothing() -> None:
    case = Case(TrackerRule("latest.txt"), StepDirName("step_600", 600))
    case.tracker = ("1000", 5_000)
    case.write(9_000, "weights")
    assert not case.scan(9_001).complete
    case.tracker = ("600", 9_010)
    entry = case.scan(9_011)
    assert entry.complete
    assert entry.completed_at == 9_010


def test_an_old_one_whose_files_are_not_kept_is_doubted_by_its_witnesses() -> None:
    case = Case()
    case.write(100, "weights", size=100)
    case.write(101, "config")
    case.write(102, "DONE")
    kept = case.scan(200)
    assert set(kept.memory.sentinels) == {"weights", "DONE"}
    case.entry = replace(kept, files=None)
    assert case.scan(300).complete
    case.entry = replace(kept, files=None)
    case.write(400, "weights")
    assert not case.scan(401).complete


class TestOrder:
    def test_is_by_time_and_then_by_step(self) -> None:
        old = seen({"w": (10, 100.0)}, StepDirName("step_1000", 1000))
        resumed = seen({"w": (10, 200.0)}, StepDirName("step_600", 600))
        same = seen({"w": (10, 200.0)}, StepDirName("step_601", 601))
        assert max(old, resumed, same, key=lambda entry: entry.sort_key) is same
        assert resumed.is_newer_than(old)
        assert not old.is_newer_than(resumed)

    def test_is_not_moved_by_small_files_of_another_time(self) -> None:
        old = seen({"w": (1000, 100.0), "report.html": (10, 9_000.0)})
        new = seen({"w": (1000, 200.0), "tokenizer.json": (10, 1.0)})
        assert new.is_newer_than(old)
        assert (old.half_written_at, new.half_written_at) == (100, 200)

    def test_of_an_empty_one_is_by_step(self) -> None:
        newest = seen({"w": (1, 100.0)}, StepDirName("step_5", 5))
        in_progress = seen({}, StepDirName("step_6", 6))
        left_over = seen({}, StepDirName("step_4", 4))
        assert in_progress.is_newer_than(newest)
        assert not left_over.is_newer_than(newest)
        assert left_over.is_newer_than(None)


def test_a_save_began_with_the_first_write_after_the_one_before() -> None:
    entry = seen({"tokenizer.json": (1, 5.0), "weights": (9, 210.0), "optimizer": (9, 230.0)})
    assert entry.began_at() == 5
    assert entry.began_at(after=200) == 210
    assert entry.began_at(after=500) == 5


def test_files_without_bytes_have_a_time_too() -> None:
    assert seen({"a": (0, 7.0), "b": (0, 8.0)}).half_written_at == 7
