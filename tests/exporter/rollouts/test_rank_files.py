from __future__ import annotations

from collections.abc import Mapping

from trainwarden_exporter.frameworks.completeness_rules import (
    FileInfo,
    FolderContent,
    JsonStepRule,
    MarkerRule,
    RenamedRule,
    StepDirContent,
    TrackerRule,
)
from trainwarden_exporter.rollouts.rank_files import FIRST_QUIET_SECONDS, AllRanksRule, RankCounter
from trainwarden_exporter.step_dirs.completeness import ScanMemory, StepDir
from trainwarden_exporter.step_dirs.names import StepDirName
from trainwarden_exporter.step_dirs.tree_walk import Stamp

RANK = r"rank_(?P<rank>\d+)\.(?:pt|bin)"


def files(*ranks: int, size: int = 1, moment: float = 100.0) -> dict[str, FileInfo]:
    return {f"rank_{rank}.pt": FileInfo(size, moment) for rank in ranks}


def entry(step: int, ranks: int) -> StepDir:
    name = StepDirName(f"step_{step}", step)
    return StepDir(name, True, 1, 1, 1, 1, ScanMemory(Stamp(1, 1, 1), {}), files(*range(ranks)))


def is_complete(ranks: RankCounter, seen: Mapping[str, FileInfo], now: float = 1_000.0) -> bool:
    rule = AllRanksRule(ranks, RenamedRule())
    return rule.is_complete(StepDirContent("step_1", 1, seen, {}), FolderContent({}, now))


def test_a_share_counts_once_it_is_there_and_not_empty() -> None:
    ranks = RankCounter(RANK, None)
    seen = {**files(0, 1), **files(2, size=0), "rank_3.pt.tmp": FileInfo(5, 1)}
    assert ranks.ranks_in(seen) == {"0", "1"}
    assert ranks.ranks_in({"rank_0.pt": FileInfo(1, 1), "rank_0.bin": FileInfo(1, 1)}) == {"0"}


def test_as_many_are_needed_as_configured() -> None:
    ranks = RankCounter(RANK, 4)
    assert not is_complete(ranks, files(0, 1, 3))
    assert is_complete(ranks, files(0, 1, 2, 3))
    assert not ranks.learn([entry(2, 2), entry(1, 2)])
    assert ranks.expected == 4


def test_as_many_are_needed_as_the_ones_before_had() -> None:
    ranks = RankCounter(RANK, None)
    assert ranks.learn([entry(3, 1), entry(2, 4), entry(1, 4)])
    assert not ranks.learn([entry(3, 2), entry(2, 4), entry(1, 4)])
    assert ranks.expected == 4
    assert not is_complete(ranks, files(0, 1))
    assert is_complete(ranks, files(0, 1, 2, 3))


def test_a_run_that_goes_on_with_fewer_is_understood_after_some_steps() -> None:
    ranks = RankCounter(RANK, None)
    seen = [entry(step, 4) for step in (3, 2, 1)]
    expected = []
    for step in (4, 5, 6, 7):
        seen.insert(0, entry(step, 2))
        ranks.learn(seen)
        expected.append(ranks.expected)
    assert expected == [4, 4, 4, 2]


def test_of_the_first_entry_of_all_those_count_that_are_there_when_it_rests() -> None:
    ranks = RankCounter(RANK, None)
    ranks.learn([entry(1, 1)])
    assert ranks.expected is None
    assert not is_complete(ranks, files(0), now=100 + FIRST_QUIET_SECONDS - 1)
    assert is_complete(ranks, files(0, 1), now=100 + FIRST_QUIET_SECONDS)
    assert not is_complete(ranks, {}, now=1_000)


def test_entries_without_a_share_teach_no_ranks() -> None:
    ranks = RankCounter(RANK, None)
    ranks.learn([entry(2, 0), entry(1, 0)])
    assert ranks.expected is None


def test_the_other_proof_is_asked_too() -> None:
    marked = AllRanksRule(RankCounter(RANK, 1), MarkerRule(("DONE",)))
    around = FolderContent({"latest": "1"}, 1_000, {"latest": 500})
    assert not marked.is_complete(StepDirContent("step_1", 1, files(0), {}), around)
    whole = StepDirContent("step_1", 1, {**files(0), "DONE": FileInfo(0, 101)}, {})
    assert marked.is_complete(whole, around)
    assert marked.is_renewed(whole, around)
    tracked = AllRanksRule(RankCounter(RANK, 1), TrackerRule("latest"))
    assert tracked.folder_files_to_read == ("latest",)
    assert tracked.completed_at(StepDirContent("step_1", 1, files(0), {}), around) == 500
    assert AllRanksRule(RankCounter(RANK, 1), JsonStepRule("state.json", "step")).files_to_read == (
        "state.json",
    )
