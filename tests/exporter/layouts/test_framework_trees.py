"""Each layout reads the trees of its framework: what is there, what is complete, how far it is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from framework_trees import BUILDERS, FRESH, NOW, State, Written, framework, write
from trainwarden_exporter.layouts import layout
from trainwarden_exporter.layouts.base import CheckpointLayout, RolloutLayout
from trainwarden_exporter.layouts.places import Instance, resolve
from trainwarden_exporter.layouts.proofs import EntrySeen, FileSeen, FolderSeen, Proof, Settled

each_tree = pytest.mark.parametrize(
    ("name", "state"), [(name, state) for name in BUILDERS for state in State], ids=str
)


each_framework = pytest.mark.parametrize("name", BUILDERS)


def found(name: str, written: Written) -> Instance:
    known = layout(framework(name))
    return resolve(written.path, known.templates, {})


def texts(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in names if (folder / name).is_file()}


def files(entry: Path) -> Iterator[tuple[str, FileSeen]]:
    for path in (entry, *entry.rglob("*")):
        if path.is_file():
            status = path.stat()
            name = "" if path == entry else path.relative_to(entry).as_posix()
            yield name, FileSeen(status.st_size, status.st_mtime)


def sorted_out(
    place: CheckpointLayout | RolloutLayout, folder: Path, *, proof: Proof | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the complete entries and of the others, in the order of their steps."""
    proof = proof or place.proof
    partial = place.partial if isinstance(place, CheckpointLayout) else ""
    around = FolderSeen(texts(folder, proof.reads_around), NOW)
    complete: list[tuple[int, str]] = []
    rest: list[tuple[int, str]] = []
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(place.entry, path.name)
        unfinished = re.fullmatch(partial, path.name) if partial else None
        if match is None and unfinished is None:
            continue
        step = int((match or unfinished or {}).groupdict().get("step", -1))  # type: ignore[union-attr]
        seen = EntrySeen(path.name, step, dict(files(path)), texts(path, proof.reads))
        holds = match is not None and proof.holds(seen, around)
        (complete if holds else rest).append((step, path.name))
    return tuple(name for _, name in sorted(complete)), tuple(name for _, name in sorted(rest))


@each_tree
def test_the_run_and_its_names_are_found(tmp_path: Path, name: str, state: State) -> None:
    written = write(tmp_path, name, state)
    assert found(name, written).names == written.names


@each_tree
def test_the_complete_checkpoints_are_told_from_the_others(
    tmp_path: Path, name: str, state: State
) -> None:
    written = write(tmp_path, name, state)
    instance = found(name, written)
    for place in layout(framework(name)).checkpoints:
        folders = instance.folders(place.folder)
        expected = (written.complete.get(place.name, ()), written.incomplete.get(place.name, ()))
        assert [sorted_out(place, one) for one in folders] == [expected] * bool(any(expected))


@each_tree
def test_the_step_is_the_number_of_steps_done(tmp_path: Path, name: str, state: State) -> None:
    written = write(tmp_path, name, state)
    if not written.complete or name == "ray_train":
        assert written.step is None
        return
    place = layout(framework(name)).checkpoints[0]
    match = re.fullmatch(place.entry, written.complete[place.name][-1])
    assert match is not None
    assert int(match["step"]) + place.step_offset == written.step


@each_framework
def test_batches_and_weights_are_complete_with_all_their_parts(tmp_path: Path, name: str) -> None:
    written = write(tmp_path, name, State.COMPLETE)
    instance = found(name, written)
    for place in layout(framework(name)).rollouts:
        folders = instance.folders(place.folder)
        expected = (
            written.rollouts.get(place.name, ()),
            written.incomplete_rollouts.get(place.name, ()),
        )
        assert [sorted_out(place, one) for one in folders] == [expected] * bool(any(expected))


@each_framework
def test_the_logs_are_found(tmp_path: Path, name: str) -> None:
    written = write(tmp_path, name, State.COMPLETE)
    instance = found(name, written)
    for log in layout(framework(name)).logs:
        paths = {path for template in log.files for path in instance.files(template)}
        assert paths == {written.path / one for one in written.logs.get(log.name, ())}


@each_tree
def test_progress_files_tell_the_step(tmp_path: Path, name: str, state: State) -> None:
    written = write(tmp_path, name, state)
    instance = found(name, written)
    for source in layout(framework(name)).progress_files:
        for path in instance.files(source.file)[:1]:
            text = path.read_text()
            if source.kind == "text":
                match = re.search(source.step, text)
                assert match is not None
                step = int(match["step"])
            elif source.kind == "json":
                said = json.loads(text)
                step = said[source.step]
                assert said[source.total] == 1500
            else:
                header, *rows = text.splitlines()
                step = int(rows[-1].split(",")[header.split(",").index(source.step)])
            newest = 3000 if name == "lightning" else written.step
            assert step + source.step_offset == newest


@pytest.mark.parametrize("state", State)
def test_areal_has_a_record_to_resume_from(tmp_path: Path, state: State) -> None:
    written = write(tmp_path, "areal", state)
    instance = found("areal", written)
    record = layout("areal").checkpoints[0].recovery
    assert record is not None
    (path,) = instance.files(record.file)
    match = re.search(record.step, path.read_text())
    assert match is not None
    assert int(match["step"]) + record.step_offset == written.recovery
    (newer,), (last,) = instance.files(record.newer), instance.files(record.written_last)
    assert last.stat().st_mtime >= newer.stat().st_mtime


def test_night_2_is_found_by_the_framework_and_a_path(tmp_path: Path) -> None:
    written = write(tmp_path / "outputs/grpo", "areal", State.COMPLETE)
    instance = found("areal", written)
    (place, _) = layout("areal").checkpoints
    (folder,) = instance.folders(place.folder)
    newest = sorted_out(place, folder)[0][-1]
    assert folder == tmp_path / (
        "outputs/grpo/checkpoints/root/gsm8k-grpo-full-local/trial0/default"
    )
    assert newest == "epoch1epochstep934globalstep1869"
    assert written.step == written.recovery == 1870


def test_night_4_is_found_by_the_run_or_by_what_holds_runs(tmp_path: Path) -> None:
    written = write(tmp_path / "outputs", "prime_rl_0_2", State.COMPLETE)
    place = layout("prime_rl").rollouts[0]
    inner = replace(written, path=written.path / "wordle-rl-4xa100-80gb")
    for one in (written, inner):
        (folder,) = found("prime_rl", one).folders(place.folder)
        complete, incomplete = sorted_out(place, folder)
        assert (complete, incomplete) == (("step_41", "step_42"), ("step_43",))
    ranks = [path.name for path in (folder / "step_42").iterdir()]
    assert {int(re.fullmatch(place.rank, rank)["rank"]) for rank in ranks} == {0, 1, 2, 3}  # type: ignore[index]


def test_where_batches_will_be_is_known_before_the_first(tmp_path: Path) -> None:
    """Night 4 in its first minute: the folder is there, and nobody writes into it."""
    (tmp_path / "rollouts").mkdir()
    place = layout("prime_rl").rollouts[0]
    instance = resolve(tmp_path, layout("prime_rl").templates, {})
    assert instance.folders(place.folder) == ()
    assert instance.expected(tmp_path, place.folder) == tmp_path / "rollouts"


def test_traces_alone_are_no_batches(tmp_path: Path) -> None:
    """As in a run whose batches travel by ZMQ: nothing there is ever to become complete."""
    traces = tmp_path / "rollouts/step_7/train/effective/traces.jsonl"
    traces.parent.mkdir(parents=True)
    traces.write_text("{}\n")
    places = {place.name: place for place in layout("prime_rl").rollouts}
    instance = resolve(tmp_path, layout("prime_rl").templates, {})
    assert instance.folders(places["batches"].folder) == ()
    (folder,) = instance.folders(places["traces"].folder)
    assert sorted_out(places["traces"], folder) == (("step_7",), ())


def test_half_a_checkpoint_of_prime_rl_is_none(tmp_path: Path) -> None:
    written = write(tmp_path, "prime_rl", State.COMPLETE)
    (tmp_path / "checkpoints/step_300/orchestrator/progress.pt").rename(
        tmp_path / "checkpoints/step_300/orchestrator/progress.pt.x.tmp"
    )
    place = layout("prime_rl").checkpoints[0]
    assert sorted_out(place, written.path / "checkpoints") == (
        ("step_100", "step_200"),
        ("step_300",),
    )


@pytest.mark.parametrize(
    ("names", "complete"),
    [
        (("config.json", "model.safetensors"), False),
        (("adapter_model.safetensors", "adapter_config.json"), True),
        (("config.json", "pytorch_model.bin", "tokenizer_config.json"), True),
        (("config.json", "model-00001-of-00002.safetensors", "tokenizer_config.json"), True),
    ],
)
def test_areal_needs_the_tokenizer_unless_it_is_an_adapter(
    tmp_path: Path, names: tuple[str, ...], complete: bool
) -> None:
    written = write(tmp_path, "areal", State.COMPLETE)
    place = layout("areal").checkpoints[0]
    (folder,) = found("areal", written).folders(place.folder)
    newest = folder / "epoch1epochstep934globalstep1869"
    status = newest.stat()
    for path in newest.iterdir():
        path.unlink()
    for name in names:
        (newest / name).touch()
        os.utime(newest / name, (status.st_mtime, status.st_mtime))
    assert (newest.name in sorted_out(place, folder)[0]) is complete


def test_a_folder_that_still_changes_is_not_settled(tmp_path: Path) -> None:
    written = write(tmp_path, "lightning", State.HALF_WRITTEN)
    place = layout("lightning").checkpoints[0]
    (folder,) = found("lightning", written).folders(place.folder)
    hasty = Settled(("",), seconds=FRESH - 1)
    assert len(sorted_out(place, folder)[0]) == 2
    assert len(sorted_out(place, folder, proof=hasty)[0]) == 3


def test_two_runs_in_one_folder_are_told_apart_by_their_newest_change(tmp_path: Path) -> None:
    old = write(tmp_path / "results", "nemo_rl", State.COMPLETE)
    other = tmp_path / "results/sft/step_5"
    other.mkdir(parents=True)
    (other / "training_info.json").write_text("{}")  # now, and so long after the other run
    place = layout("nemo_rl").checkpoints[0]
    known = layout("nemo_rl")
    assert resolve(old.path, known.templates, {}).names == {"run": "sft"}
    named = resolve(old.path, known.templates, {"run": "grpo"})
    assert named.folders(place.folder) == (old.path / "grpo",)
