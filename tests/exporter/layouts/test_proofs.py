from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace

import pytest

from trainwarden_exporter.layouts.proofs import (
    AllOf,
    AnyOf,
    EntrySeen,
    FileSeen,
    FolderSeen,
    JsonStep,
    Listed,
    Marker,
    Proof,
    Renamed,
    Settled,
    Tracker,
)

NOW = 1_000.0
AROUND = FolderSeen(texts={}, now=NOW)


def entry(files: Mapping[str, float], *, step: int = 10, **texts: str) -> EntrySeen:
    """An entry whose files were last changed when `files` says."""
    seen = {name: FileSeen(size=5, modified=modified) for name, modified in files.items()}
    return EntrySeen(f"step_{step}", step, seen, texts)


def around(**texts: str) -> FolderSeen:
    return FolderSeen(
        texts={name.replace("_txt", ".txt"): text for name, text in texts.items()}, now=NOW
    )


PROOFS = (
    Marker(all_of=("DONE",)),
    Renamed(),
    Tracker("latest.txt"),
    JsonStep("state.json", "global_step"),
    Listed("snapshot.json"),
    Settled(all_of=("*.safetensors",)),
)


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: type(proof).__name__)
def test_that_it_exists_proves_nothing(proof: Proof) -> None:
    everything = FolderSeen(texts={"latest.txt": "10", "snapshot.json": '"other"'}, now=NOW)
    assert not proof.holds(entry({}), everything)


def test_a_marker_proves_its_entry_once_all_parts_have_theirs() -> None:
    proof = Marker(all_of=("trainer/.metadata", "orchestrator/progress.pt"))
    assert not proof.holds(entry({"trainer/.metadata": 1, "trainer/__0_0.distcp": 1}), AROUND)
    assert proof.holds(entry({"trainer/.metadata": 1, "orchestrator/progress.pt": 1}), AROUND)


def test_an_old_marker_in_a_folder_written_again_proves_nothing() -> None:
    proof = Marker(all_of=(".metadata",), last=True)
    assert not proof.holds(entry({".metadata": 100, "__0_0.distcp": 160}), AROUND)
    assert proof.holds(entry({".metadata": 161, "__0_0.distcp": 160}), AROUND)


def test_a_sign_of_incompleteness_outweighs_the_marker() -> None:
    proof = Marker(all_of=("DONE",), none_of=("*.tmp",))
    assert not proof.holds(entry({"DONE": 1, "weights.tmp": 1}), AROUND)


def test_a_renamed_entry_without_content_is_not_one() -> None:
    empty = EntrySeen("step_10", 10, {"": FileSeen(size=0, modified=1)}, {})
    assert not Renamed().holds(empty, AROUND)
    assert Renamed().holds(entry({"weights.bin": 1}), AROUND)


@pytest.mark.parametrize(
    ("tracker", "complete"), [("10", True), ("11\n", True), ("9", False), ("release", False)]
)
def test_a_tracker_proves_what_is_not_beyond_it(tracker: str, *, complete: bool) -> None:
    seen = around(latest_txt=tracker)
    assert Tracker("latest.txt").holds(entry({"w": 1}), seen) is complete


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
def test_a_state_file_must_parse_and_say_the_entrys_own_step(text: str, *, complete: bool) -> None:
    seen = EntrySeen("checkpoint-10", 10, {"state.json": FileSeen(1, 1)}, {"state.json": text})
    assert JsonStep("state.json", "global_step").holds(seen, AROUND) is complete


def test_all_that_a_run_has_logged_is_not_kept_to_know_a_step() -> None:
    lines = [{"loss": 0.5, "reward": 0.25, "step": step} for step in range(20_000)]
    text = json.dumps({"global_step": 10, "log_history": lines, "best": {"global_step": 7}})
    seen = replace(entry({"state.json": NOW}, step=10), texts={"state.json": text})
    tracemalloc.start()
    assert JsonStep("state.json", "global_step").holds(seen, AROUND)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < len(text)


def test_a_list_names_the_complete_ones_in_whole() -> None:
    listed = FolderSeen(texts={"snapshot.json": '["step_100"]'}, now=NOW)
    assert not Listed("snapshot.json").holds(entry({"w": 1}, step=10), listed)
    assert Listed("snapshot.json").holds(entry({"w": 1}, step=100), listed)


def test_what_leaves_no_proof_must_be_whole_and_at_rest() -> None:
    proof = Settled(all_of=("*.safetensors", "tokenizer.json"), seconds=30)
    whole = {"model.safetensors": NOW - 100, "tokenizer.json": NOW - 40}
    assert proof.holds(entry(whole), AROUND)
    assert not proof.holds(entry({**whole, "tokenizer.json": NOW - 29}), AROUND)
    assert not proof.holds(entry({"model.safetensors": NOW - 100}), AROUND)


def test_one_of_several_proofs_is_enough_and_all_are_read_for() -> None:
    proof = AnyOf((JsonStep("state.json", "step"), Tracker("latest.txt"), Marker(all_of=("DONE",))))
    assert proof.reads == ("state.json",)
    assert proof.reads_around == ("latest.txt",)
    assert proof.holds(entry({"DONE": 1}), AROUND)
    assert not proof.holds(entry({"w": 1}), AROUND)


def tracked(text: str, modified: float) -> FolderSeen:
    return FolderSeen({"latest.txt": text}, NOW, {"latest.txt": modified})


def test_a_tracker_of_the_life_before_proves_nothing_that_was_written_after_it() -> None:
    proof, half = Tracker("latest.txt"), entry({"w": 900}, step=600)
    assert not proof.holds(half, tracked("1000", 500))
    assert proof.holds(half, tracked("600", 901))


def test_what_little_is_written_after_the_tracker_belongs_to_the_save() -> None:
    seen = EntrySeen("step_10", 10, {"w": FileSeen(100, 500), "state": FileSeen(5, 520)}, {})
    assert Tracker("latest.txt").holds(seen, tracked("10", 501))


def test_a_tracker_completes_the_one_it_names() -> None:
    proof = Tracker("latest.txt")
    assert proof.completed(entry({"w": 500}, step=10), tracked("10", 530)) == 530
    assert proof.completed(entry({"w": 500}, step=10), tracked("20", 900)) == 500
    both = AllOf((proof, Marker(("w",))))
    assert both.completed(entry({"w": 500}), tracked("10", 530)) == 530
    assert AnyOf((proof, Marker(("w",)))).completed(entry({"w": 500}), tracked("10", 530)) == 500


@pytest.mark.parametrize(
    "proof",
    [
        Marker(("DONE",)),
        JsonStep("DONE", "step"),
        Tracker("latest.txt"),
        AnyOf((Marker(("missing",)), Marker(("DONE",)))),
        AllOf((Tracker("latest.txt"), Marker(("w",)))),
        AllOf((Renamed(), Marker(("DONE",)))),
    ],
    ids=repr,
)
def test_a_proof_that_is_older_than_what_it_is_about_was_not_renewed(proof: Proof) -> None:
    assert proof.renewed(entry({"w": 100, "DONE": 101}), tracked("10", 101))
    assert not proof.renewed(entry({"w": 200, "DONE": 101}), tracked("10", 101))
    assert proof.renewed(entry({"w": 200, "DONE": 201}), tracked("10", 201))


@pytest.mark.parametrize("proof", [Renamed(), Settled(("w",))], ids=repr)
def test_what_leaves_no_proof_need_not_renew_it(proof: Proof) -> None:
    assert proof.renewed(entry({"w": 200, "DONE": 101}), AROUND)


def test_a_list_must_be_as_new_as_what_stands_in_it() -> None:
    listed = FolderSeen({"snapshot.json": '["step_10"]'}, NOW, {"snapshot.json": 150})
    assert Listed("snapshot.json").renewed(entry({"w": 151}), listed)
    assert not Listed("snapshot.json").renewed(entry({"w": 200}), listed)


def test_an_entry_is_as_old_as_the_better_half_of_its_bytes() -> None:
    files = {"copied": FileSeen(10, 1), "weights": FileSeen(900, 500), "added": FileSeen(10, 9_000)}
    seen = EntrySeen("step_10", 10, files, {})
    assert (seen.written, seen.changed, seen.size) == (500, 9_000, 920)
    assert entry({}).written == 0


@pytest.mark.parametrize("text", ["[" * 100_000, '{"global_step": ' + "9" * 10_000])
def test_a_state_file_of_garbage_is_none(text: str) -> None:
    seen = EntrySeen("checkpoint-10", 10, {"state.json": FileSeen(1, 1)}, {"state.json": text})
    assert not JsonStep("state.json", "global_step").holds(seen, AROUND)
