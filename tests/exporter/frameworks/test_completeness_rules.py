from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace

import pytest

from trainwarden_exporter.frameworks.completeness_rules import (
    AllOf,
    AnyOf,
    CompletenessRule,
    FileInfo,
    FolderContent,
    JsonStepRule,
    ListedRule,
    MarkerRule,
    RenamedRule,
    SettledRule,
    StepDirContent,
    TrackerRule,
)

NOW = 1_000.0
EMPTY_FOLDER = FolderContent(texts={}, now=NOW)


def entry(files: Mapping[str, float], *, step: int = 10, **texts: str) -> StepDirContent:
    """Returns an entry; `files` are the times of their last change."""
    seen = {name: FileInfo(size=5, modified=modified) for name, modified in files.items()}
    return StepDirContent(f"step_{step}", step, seen, texts)


def folder_with(**texts: str) -> FolderContent:
    return FolderContent(
        texts={name.replace("_txt", ".txt"): text for name, text in texts.items()}, now=NOW
    )


RULES = (
    MarkerRule(all_of=("DONE",)),
    RenamedRule(),
    TrackerRule("latest.txt"),
    JsonStepRule("state.json", "global_step"),
    ListedRule("snapshot.json"),
    SettledRule(all_of=("*.safetensors",)),
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_existence_alone_proves_nothing(rule: CompletenessRule) -> None:
    everything = FolderContent(texts={"latest.txt": "10", "snapshot.json": '"other"'}, now=NOW)
    assert not rule.is_complete(entry({}), everything)


def test_an_entry_is_complete_once_all_markers_exist() -> None:
    rule = MarkerRule(all_of=("trainer/.metadata", "orchestrator/progress.pt"))
    assert not rule.is_complete(
        entry({"trainer/.metadata": 1, "trainer/__0_0.distcp": 1}), EMPTY_FOLDER
    )
    assert rule.is_complete(
        entry({"trainer/.metadata": 1, "orchestrator/progress.pt": 1}), EMPTY_FOLDER
    )


def test_an_old_marker_in_a_rewritten_folder_proves_nothing() -> None:
    rule = MarkerRule(all_of=(".metadata",), last=True)
    assert not rule.is_complete(entry({".metadata": 100, "__0_0.distcp": 160}), EMPTY_FOLDER)
    assert rule.is_complete(entry({".metadata": 161, "__0_0.distcp": 160}), EMPTY_FOLDER)


def test_an_excluded_file_outweighs_the_marker() -> None:
    rule = MarkerRule(all_of=("DONE",), none_of=("*.tmp",))
    assert not rule.is_complete(entry({"DONE": 1, "weights.tmp": 1}), EMPTY_FOLDER)


def test_a_renamed_entry_without_content_is_incomplete() -> None:
    empty = StepDirContent("step_10", 10, {"": FileInfo(size=0, modified=1)}, {})
    assert not RenamedRule().is_complete(empty, EMPTY_FOLDER)
    assert RenamedRule().is_complete(entry({"weights.bin": 1}), EMPTY_FOLDER)


@pytest.mark.parametrize(
    ("tracker", "complete"), [("10", True), ("11\n", True), ("9", False), ("release", False)]
)
def test_a_tracker_proves_its_step_and_earlier_steps(tracker: str, *, complete: bool) -> None:
    seen = folder_with(latest_txt=tracker)
    assert TrackerRule("latest.txt").is_complete(entry({"w": 1}), seen) is complete


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        (json.dumps({"global_step": 10}), True),
        (json.dumps({"global_step": 9}), False),
        ('{"global_step": 1', False),
        ("[10]", False),
        ("", False),
    ],
)
def test_a_state_file_must_parse_and_contain_the_step_of_its_entry(
    text: str, *, complete: bool
) -> None:
    seen = StepDirContent("checkpoint-10", 10, {"state.json": FileInfo(1, 1)}, {"state.json": text})
    assert JsonStepRule("state.json", "global_step").is_complete(seen, EMPTY_FOLDER) is complete


def test_reading_a_step_does_not_keep_the_log_history_in_memory() -> None:
    lines = [{"loss": 0.5, "reward": 0.25, "step": step} for step in range(20_000)]
    text = json.dumps({"global_step": 10, "log_history": lines, "best": {"global_step": 7}})
    seen = replace(entry({"state.json": NOW}, step=10), texts={"state.json": text})
    tracemalloc.start()
    assert JsonStepRule("state.json", "global_step").is_complete(seen, EMPTY_FOLDER)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < len(text)


def test_a_list_contains_whole_names_of_complete_entries() -> None:
    listed = FolderContent(texts={"snapshot.json": '["step_100"]'}, now=NOW)
    assert not ListedRule("snapshot.json").is_complete(entry({"w": 1}, step=10), listed)
    assert ListedRule("snapshot.json").is_complete(entry({"w": 1}, step=100), listed)


def test_a_settled_entry_has_all_files_and_no_recent_change() -> None:
    rule = SettledRule(all_of=("*.safetensors", "tokenizer.json"), seconds=30)
    files = {"model.safetensors": NOW - 100, "tokenizer.json": NOW - 40}
    assert rule.is_complete(entry(files), EMPTY_FOLDER)
    assert not rule.is_complete(entry({**files, "tokenizer.json": NOW - 29}), EMPTY_FOLDER)
    assert not rule.is_complete(entry({"model.safetensors": NOW - 100}), EMPTY_FOLDER)


def test_any_of_several_rules_is_enough_and_the_files_of_all_are_read() -> None:
    rule = AnyOf(
        (
            JsonStepRule("state.json", "step"),
            TrackerRule("latest.txt"),
            MarkerRule(all_of=("DONE",)),
        )
    )
    assert rule.files_to_read == ("state.json",)
    assert rule.folder_files_to_read == ("latest.txt",)
    assert rule.is_complete(entry({"DONE": 1}), EMPTY_FOLDER)
    assert not rule.is_complete(entry({"w": 1}), EMPTY_FOLDER)


def tracked(text: str, modified: float) -> FolderContent:
    return FolderContent({"latest.txt": text}, NOW, {"latest.txt": modified})


def test_a_tracker_of_the_previous_attempt_proves_no_later_writes() -> None:
    rule, incomplete = TrackerRule("latest.txt"), entry({"w": 900}, step=600)
    assert not rule.is_complete(incomplete, tracked("1000", 500))
    assert rule.is_complete(incomplete, tracked("600", 901))


def test_small_files_written_after_the_tracker_belong_to_the_save() -> None:
    seen = StepDirContent("step_10", 10, {"w": FileInfo(100, 500), "state": FileInfo(5, 520)}, {})
    assert TrackerRule("latest.txt").is_complete(seen, tracked("10", 501))


def test_the_step_that_a_tracker_names_is_completed_by_the_tracker() -> None:
    rule = TrackerRule("latest.txt")
    assert rule.completed_at(entry({"w": 500}, step=10), tracked("10", 530)) == 530
    assert rule.completed_at(entry({"w": 500}, step=10), tracked("20", 900)) == 500
    both = AllOf((rule, MarkerRule(("w",))))
    assert both.completed_at(entry({"w": 500}), tracked("10", 530)) == 530
    assert (
        AnyOf((rule, MarkerRule(("w",)))).completed_at(entry({"w": 500}), tracked("10", 530)) == 500
    )


@pytest.mark.parametrize(
    "rule",
    [
        MarkerRule(("DONE",)),
        JsonStepRule("DONE", "step"),
        TrackerRule("latest.txt"),
        AnyOf((MarkerRule(("missing",)), MarkerRule(("DONE",)))),
        AllOf((TrackerRule("latest.txt"), MarkerRule(("w",)))),
        AllOf((RenamedRule(), MarkerRule(("DONE",)))),
    ],
    ids=repr,
)
def test_a_proof_older_than_its_entry_is_not_renewed(rule: CompletenessRule) -> None:
    assert rule.is_renewed(entry({"w": 100, "DONE": 101}), tracked("10", 101))
    assert not rule.is_renewed(entry({"w": 200, "DONE": 101}), tracked("10", 101))
    assert rule.is_renewed(entry({"w": 200, "DONE": 201}), tracked("10", 201))


@pytest.mark.parametrize("rule", [RenamedRule(), SettledRule(("w",))], ids=repr)
def test_a_rule_without_a_proof_file_is_always_renewed(rule: CompletenessRule) -> None:
    assert rule.is_renewed(entry({"w": 200, "DONE": 101}), EMPTY_FOLDER)


def test_a_list_must_be_as_new_as_its_entries() -> None:
    listed = FolderContent({"snapshot.json": '["step_10"]'}, NOW, {"snapshot.json": 150})
    assert ListedRule("snapshot.json").is_renewed(entry({"w": 151}), listed)
    assert not ListedRule("snapshot.json").is_renewed(entry({"w": 200}), listed)


def test_the_age_of_an_entry_is_that_of_half_of_its_bytes() -> None:
    files = {"copied": FileInfo(10, 1), "weights": FileInfo(900, 500), "added": FileInfo(10, 9_000)}
    seen = StepDirContent("step_10", 10, files, {})
    assert (seen.half_written_at, seen.changed_at, seen.size) == (500, 9_000, 920)
    assert entry({}).half_written_at == 0


@pytest.mark.parametrize("text", ["[" * 100_000, '{"global_step": ' + "9" * 10_000])
def test_an_invalid_state_file_proves_nothing(text: str) -> None:
    seen = StepDirContent("checkpoint-10", 10, {"state.json": FileInfo(1, 1)}, {"state.json": text})
    assert not JsonStepRule("state.json", "global_step").is_complete(seen, EMPTY_FOLDER)
