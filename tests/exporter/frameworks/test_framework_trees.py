"""Each definition finds checkpoints, batches, logs and steps in the trees of its framework."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from framework_trees import BUILDERS, FRESH, NOW, State, Written, framework, write
from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.frameworks.base import CheckpointLayout, RolloutLayout
from trainwarden_exporter.frameworks.completeness_rules import (
    CompletenessRule,
    FileInfo,
    FolderContent,
    SettledRule,
    StepDirContent,
)
from trainwarden_exporter.frameworks.path_resolution import RunInstance, resolve

each_tree = pytest.mark.parametrize(
    ("name", "state"), [(name, state) for name in BUILDERS for state in State], ids=str
)


each_framework = pytest.mark.parametrize("name", BUILDERS)


def find_run(name: str, written: Written) -> RunInstance:
    return resolve(written.path, get_framework(framework(name)).templates, {})


def texts(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in names if (folder / name).is_file()}


def files(entry: Path) -> Iterator[tuple[str, FileInfo]]:
    for path in (entry, *entry.rglob("*")):
        if path.is_file():
            status = path.stat()
            name = "" if path == entry else path.relative_to(entry).as_posix()
            yield name, FileInfo(status.st_size, status.st_mtime)


def partition_entries(
    layout: CheckpointLayout | RolloutLayout,
    folder: Path,
    *,
    completeness: CompletenessRule | None = None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the names of the complete and of the incomplete entries, in the order of steps."""
    completeness = completeness or layout.completeness
    partial = layout.partial if isinstance(layout, CheckpointLayout) else ""
    around = FolderContent(texts(folder, completeness.folder_files_to_read), NOW)
    complete: list[tuple[int, str]] = []
    rest: list[tuple[int, str]] = []
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(layout.entry, path.name)
        unfinished = re.fullmatch(partial, path.name) if partial else None
        if match is None and unfinished is None:
            continue
        step = int((match or unfinished or {}).groupdict().get("step", -1))  # type: ignore[union-attr]
        seen = StepDirContent(
            path.name, step, dict(files(path)), texts(path, completeness.files_to_read)
        )
        is_complete = match is not None and completeness.is_complete(seen, around)
        (complete if is_complete else rest).append((step, path.name))
    return tuple(name for _, name in sorted(complete)), tuple(name for _, name in sorted(rest))


@each_tree
def test_the_run_and_its_names_are_found(tmp_path: Path, name: str, state: State) -> None:
    written = write(tmp_path, name, state)
    assert find_run(name, written).names == written.names


@each_tree
def test_the_complete_checkpoints_are_distinguished_from_the_others(
    tmp_path: Path, name: str, state: State
) -> None:
    written = write(tmp_path, name, state)
    instance = find_run(name, written)
    for layout in get_framework(framework(name)).checkpoints:
        folders = instance.folders(layout.folder)
        expected = (written.complete.get(layout.name, ()), written.incomplete.get(layout.name, ()))
        assert [partition_entries(layout, one) for one in folders] == [expected] * bool(
            any(expected)
        )


@each_tree
def test_the_step_is_the_number_of_completed_steps(tmp_path: Path, name: str, state: State) -> None:
    written = write(tmp_path, name, state)
    if not written.complete or name == "ray_train":
        assert written.step is None
        return
    layout = get_framework(framework(name)).checkpoints[0]
    match = re.fullmatch(layout.entry, written.complete[layout.name][-1])
    assert match is not None
    assert int(match["step"]) + layout.step_offset == written.step


@each_framework
def test_batches_and_weights_are_complete_with_all_their_files(tmp_path: Path, name: str) -> None:
    written = write(tmp_path, name, State.COMPLETE)
    instance = find_run(name, written)
    for layout in get_framework(framework(name)).rollouts:
        folders = instance.folders(layout.folder)
        expected = (
            written.rollouts.get(layout.name, ()),
            written.incomplete_rollouts.get(layout.name, ()),
        )
        assert [partition_entries(layout, one) for one in folders] == [expected] * bool(
            any(expected)
        )


@each_framework
def test_the_logs_are_found(tmp_path: Path, name: str) -> None:
    written = write(tmp_path, name, State.COMPLETE)
    instance = find_run(name, written)
    for log in get_framework(framework(name)).logs:
        paths = {path for template in log.files for path in instance.files(template)}
        assert paths == {written.path / one for one in written.logs.get(log.name, ())}


@each_tree
def test_progress_files_contain_the_step(tmp_path: Path, name: str, state: State) -> None:
    written = write(tmp_path, name, state)
    instance = find_run(name, written)
    for source in get_framework(framework(name)).progress_files:
        for path in instance.files(source.file)[:1]:
            text = path.read_text()
            if source.kind == "text":
                match = re.search(source.step, text)
                assert match is not None
                step = int(match["step"])
            elif source.kind == "json":
                state_file = json.loads(text)
                step = state_file[source.step]
                assert state_file[source.total] == 1500
            else:
                header, *rows = text.splitlines()
                step = int(rows[-1].split(",")[header.split(",").index(source.step)])
            newest = 3000 if name == "lightning" else written.step
            assert step + source.step_offset == newest


@pytest.mark.parametrize("state", State)
def test_areal_has_a_record_to_resume_from(tmp_path: Path, state: State) -> None:
    written = write(tmp_path, "areal", state)
    instance = find_run("areal", written)
    record = get_framework("areal").checkpoints[0].recovery
    assert record is not None
    (path,) = instance.files(record.file)
    match = re.search(record.step, path.read_text())
    assert match is not None
    assert int(match["step"]) + record.step_offset == written.recovery
    (newer,), (last,) = instance.files(record.newer), instance.files(record.written_last)
    assert last.stat().st_mtime >= newer.stat().st_mtime


@pytest.mark.parametrize("log", ["logs/run-1/trainer.log", "trainer.log"])
def test_the_log_of_areal_may_lie_outside_its_folders(tmp_path: Path, log: str) -> None:
    written = write(tmp_path / "outputs", "areal", State.COMPLETE)
    for path in written.path.rglob("*.log"):
        path.unlink()
    (written.path / log).parent.mkdir(parents=True, exist_ok=True)
    (written.path / log).write_text("x")
    instance, (trainer, *_) = find_run("areal", written), get_framework("areal").logs
    assert [path for file in trainer.files for path in instance.files(file)] == [written.path / log]


def test_night_2_is_found_by_the_framework_and_a_path(tmp_path: Path) -> None:
    written = write(tmp_path / "outputs/grpo", "areal", State.COMPLETE)
    instance = find_run("areal", written)
    (layout, _) = get_framework("areal").checkpoints
    (folder,) = instance.folders(layout.folder)
    newest = partition_entries(layout, folder)[0][-1]
    assert folder == tmp_path / (
        "outputs/grpo/checkpoints/root/gsm8k-grpo-full-local/trial0/default"
    )
    assert newest == "epoch1epochstep934globalstep1869"
    assert written.step == written.recovery == 1870


def test_night_4_is_found_by_the_folder_of_the_run_or_its_parent(tmp_path: Path) -> None:
    written = write(tmp_path / "outputs", "prime_rl_0_2", State.COMPLETE)
    layout = get_framework("prime_rl").rollouts[0]
    inner = replace(written, path=written.path / "wordle-rl-4xa100-80gb")
    for one in (written, inner):
        (folder,) = find_run("prime_rl", one).folders(layout.folder)
        complete, incomplete = partition_entries(layout, folder)
        assert (complete, incomplete) == (("step_41", "step_42"), ("step_43",))
    ranks = [path.name for path in (folder / "step_42").iterdir()]
    assert {int(re.fullmatch(layout.rank, rank)["rank"]) for rank in ranks} == {0, 1, 2, 3}  # type: ignore[index]


def test_the_folder_of_batches_is_known_before_the_first_batch(tmp_path: Path) -> None:
    """Night 4 in its first minute: the folder exists and is empty."""
    (tmp_path / "rollouts").mkdir()
    layout = get_framework("prime_rl").rollouts[0]
    instance = resolve(tmp_path, get_framework("prime_rl").templates, {})
    assert instance.folders(layout.folder) == ()
    assert instance.expected_path(tmp_path, layout.folder) == tmp_path / "rollouts"


def test_traces_alone_are_not_batches(tmp_path: Path) -> None:
    """A run whose batches travel by ZMQ has no batches on disk."""
    traces = tmp_path / "rollouts/step_7/train/effective/traces.jsonl"
    traces.parent.mkdir(parents=True)
    traces.write_text("{}\n")
    layouts = {layout.name: layout for layout in get_framework("prime_rl").rollouts}
    instance = resolve(tmp_path, get_framework("prime_rl").templates, {})
    assert instance.folders(layouts["batches"].folder) == ()
    (folder,) = instance.folders(layouts["traces"].folder)
    assert partition_entries(layouts["traces"], folder) == (("step_7",), ())


def test_half_a_checkpoint_of_prime_rl_is_incomplete(tmp_path: Path) -> None:
    written = write(tmp_path, "prime_rl", State.COMPLETE)
    (tmp_path / "checkpoints/step_300/orchestrator/progress.pt").rename(
        tmp_path / "checkpoints/step_300/orchestrator/progress.pt.x.tmp"
    )
    layout = get_framework("prime_rl").checkpoints[0]
    assert partition_entries(layout, written.path / "checkpoints") == (
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
    layout = get_framework("areal").checkpoints[0]
    (folder,) = find_run("areal", written).folders(layout.folder)
    newest = folder / "epoch1epochstep934globalstep1869"
    status = newest.stat()
    for path in newest.iterdir():
        path.unlink()
    for name in names:
        (newest / name).touch()
        os.utime(newest / name, (status.st_mtime, status.st_mtime))
    assert (newest.name in partition_entries(layout, folder)[0]) is complete


def test_a_file_that_still_changes_is_not_settled(tmp_path: Path) -> None:
    written = write(tmp_path, "lightning", State.HALF_WRITTEN)
    layout = get_framework("lightning").checkpoints[0]
    (folder,) = find_run("lightning", written).folders(layout.folder)
    hasty = SettledRule(("",), seconds=FRESH - 1)
    assert len(partition_entries(layout, folder)[0]) == 2
    assert len(partition_entries(layout, folder, completeness=hasty)[0]) == 3


def test_two_runs_in_one_folder_are_distinguished_by_their_newest_change(tmp_path: Path) -> None:
    old = write(tmp_path / "results", "nemo_rl", State.COMPLETE)
    other = tmp_path / "results/sft/step_5"
    other.mkdir(parents=True)
    (other / "training_info.json").write_text("{}")  # now, long after the other run
    layout = get_framework("nemo_rl").checkpoints[0]
    templates = get_framework("nemo_rl").templates
    assert resolve(old.path, templates, {}).names == {"run": "sft"}
    named = resolve(old.path, templates, {"run": "grpo"})
    assert named.folders(layout.folder) == (old.path / "grpo",)
