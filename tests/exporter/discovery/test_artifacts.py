from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from framework_trees import State
from framework_trees import write as write_tree
from trainwarden_exporter.discovery.artifacts import (
    MAX_NAMES,
    detect_by_modules,
    detect_framework,
    find_step_folders,
    folders_below,
    logs_below,
)
from trainwarden_exporter.frameworks import FRAMEWORKS
from trainwarden_exporter.frameworks.base import CheckpointLayout, Framework, LogLayout
from trainwarden_exporter.frameworks.completeness_rules import MarkerRule

FRAMEWORK = Framework(
    name="one",
    title="One",
    checkpoints=(
        CheckpointLayout("main", "ckpt/{trial}", r"step-(?P<step>\d+)", MarkerRule(("DONE",))),
    ),
    logs=(LogLayout("main", ("logs/{trial}/*.log",)),),
)
OTHER = Framework(
    name="other",
    title="Other",
    checkpoints=(CheckpointLayout("main", "ckpt/*", r"iter_(?P<step>\d+)", MarkerRule(("DONE",))),),
    logs=FRAMEWORK.logs,
)


def write(path: Path, at: float | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    if at is not None:
        os.utime(path, (at, at))


def test_a_framework_is_recognised_by_the_names_of_its_work(tmp_path: Path) -> None:
    write(tmp_path / "out" / "ckpt" / "trial0" / "step-10" / "DONE")
    write(tmp_path / "out" / "logs" / "trial0" / "main.log")
    found = detect_framework(folders_below(tmp_path), (OTHER, FRAMEWORK))
    assert found is not None
    assert (found.framework, found.path) == (FRAMEWORK, tmp_path / "out")
    assert found.instance.names == {"trial": "trial0"}


@pytest.mark.parametrize("name", ["slime", "megatron", "openrlhf", "deepspeed"])
def test_frameworks_with_the_same_checkpoints_are_distinguished(tmp_path: Path, name: str) -> None:
    write_tree(tmp_path, name, State.COMPLETE)
    found = detect_framework(folders_below(tmp_path), FRAMEWORKS)
    assert found is not None
    assert found.framework.name == name


@pytest.mark.parametrize("module", ["llamafactory", "axolotl", "unsloth", "swift"])
def test_what_derives_from_the_trainer_is_recognised_by_its_module(module: str) -> None:
    assert detect_by_modules({module, "deepspeed", "torch"}, FRAMEWORKS) == "trl"


def test_a_log_alone_is_nobodys_in_particular(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "trial0" / "main.log")
    assert detect_framework(folders_below(tmp_path), (FRAMEWORK, OTHER)) is None


def test_an_empty_folder_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "ckpt" / "trial0").mkdir(parents=True)
    assert detect_framework(folders_below(tmp_path), (FRAMEWORK,)) is None


@pytest.mark.parametrize(
    ("names", "step"),
    [
        (("step_000010", "step_000020"), {"step_000010": "000010"}),
        (("epoch1epochstep934globalstep1869",), {"epoch1epochstep934globalstep1869": "1869"}),
        (("checkpoint-500", "checkpoint-1000"), {"checkpoint-1000": "1000"}),
        (("weight_v7", "weight_v8"), {"weight_v8": "8"}),
    ],
)
def test_the_number_of_a_step_is_the_last_one_in_a_name(
    tmp_path: Path, names: tuple[str, ...], step: dict[str, str]
) -> None:
    for name in names:
        write(tmp_path / "saved" / name / "weights.bin")
    (found,) = find_step_folders(folders_below(tmp_path))
    assert (found.kind, found.count) == ("checkpoints", len(names))
    for name, number in step.items():
        match = re.fullmatch(found.entry, name)
        assert match is not None
        assert match["step"] == number


def test_the_marker_is_what_stands_in_all_but_the_newest(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        folder = tmp_path / "checkpoints" / f"step_{step}"
        write(folder / "weights.bin", at=100.0 + step)
        write(folder / "state.json", at=101.0 + step)
        if step < 30:
            write(folder / "COMPLETE", at=102.0 + step)
    (tmp_path / "checkpoints" / "tmp_step_40").mkdir()
    (found,) = find_step_folders(folders_below(tmp_path))
    assert found.marker == "COMPLETE"
    assert re.fullmatch(found.partial, "tmp_step_40")
    assert not re.fullmatch(found.entry, "tmp_step_40")


def test_without_a_telling_name_the_file_written_last_is_the_marker(tmp_path: Path) -> None:
    for step in (10, 20):
        write(tmp_path / f"step_{step}" / "weights.bin", at=100.0 + step)
        write(tmp_path / f"step_{step}" / "trainer_state.json", at=101.0 + step)
    (found,) = find_step_folders([tmp_path])
    assert found.marker == "trainer_state.json"


def test_where_the_last_file_differs_there_is_no_marker(tmp_path: Path) -> None:
    for step, (first, last) in ((10, ("a", "b")), (20, ("b", "a")), (30, ("a", "b"))):
        write(tmp_path / f"step_{step}" / first, at=100.0 + step)
        write(tmp_path / f"step_{step}" / last, at=101.0 + step)
    (found,) = find_step_folders([tmp_path])
    assert found.marker == ""


def test_rollouts_are_distinguished_from_checkpoints_by_the_folders_name(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write(run / "rollouts" / "rollout-0" / "step_000001.json")
    write(run / "broadcasts" / "step_1" / "STABLE")
    write(run / "saved" / "step_1" / "w")
    kinds = {found.path.name: found.kind for found in find_step_folders(folders_below(run))}
    assert kinds == {"rollout-0": "batches", "broadcasts": "weights", "saved": "checkpoints"}


def test_numbered_work_is_not_looked_into(tmp_path: Path) -> None:
    for step in range(50):
        (tmp_path / "checkpoints" / f"step_{step}" / "inner").mkdir(parents=True)
    assert folders_below(tmp_path) == (tmp_path, tmp_path / "checkpoints")


def test_a_folder_without_end_is_read_in_part(tmp_path: Path) -> None:
    for number in range(MAX_NAMES + 10):
        (tmp_path / f"step_{number}").touch()
    (found,) = find_step_folders([tmp_path])
    assert found.count == MAX_NAMES


def test_logs_are_found_and_are_no_numbered_work(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "step_7.log")
    write(tmp_path / "logs" / "trainer.out")
    write(tmp_path / "logs" / "notes.md")
    folders = folders_below(tmp_path)
    assert [path.name for path in logs_below(folders)] == ["step_7.log", "trainer.out"]
    assert find_step_folders(folders) == ()


def test_a_folder_that_is_closed_to_us_holds_nothing(tmp_path: Path) -> None:
    assert folders_below(tmp_path / "absent") == (tmp_path / "absent",)
    assert find_step_folders([tmp_path / "absent"]) == ()


def test_a_folder_that_cannot_be_listed_is_skipped() -> None:
    """The working folder of some process is /, and other processes end while it is searched."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(OSError, match="Invalid argument"):
            list(Path(f"/proc/{ended.pid}/net").iterdir())
        assert detect_framework([Path(f"/proc/{ended.pid}/net")], FRAMEWORKS) is None
