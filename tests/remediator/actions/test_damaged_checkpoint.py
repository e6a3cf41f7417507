"""Damaged checkpoints are renamed before a start, and nothing else is."""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from trainwarden_exporter.frameworks import FRAMEWORKS
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import checkpoint_specs
from trainwarden_exporter.step_dirs.filesystem import FileSystem
from trainwarden_remediator.actions.damaged_checkpoint import (
    PREFIX,
    DamagedCheckpoints,
    ignored_name,
    takes_highest,
)
from trainwarden_remediator.exceptions import JournalError

ACCOUNT = os.geteuid()
Steps = list[tuple[str, dict[str, Any]]]


def save(folder: Path, step: int, *, ago: float = 3600, whole: bool = True) -> Path:
    entry = folder / f"checkpoint-{step}"
    entry.mkdir(parents=True)
    (entry / "model.safetensors").write_bytes(b"x")
    if whole:
        (entry / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    moment = FileSystem().status(str(entry)).st_mtime - ago + step
    for path in (*entry.iterdir(), entry):
        os.utime(path, (moment, moment))
    return entry


def set_aside(
    path: Path, proved: Path | str, *damaged: Path, account: int = ACCOUNT, framework: str = "trl"
) -> tuple[list[str], Steps]:
    run = RunConfig.model_validate({"name": "demo", "framework": framework, "path": str(path)})
    steps: Steps = []
    known = frozenset(map(str, damaged))
    done = DamagedCheckpoints(checkpoint_specs(run)).set_aside(
        str(proved), known, account, lambda step, **facts: steps.append((step, facts))
    )
    return done, steps


def names(path: Path) -> list[str]:
    return sorted(one.name for one in path.iterdir())


def test_what_a_resume_would_take_is_renamed_until_that_is_proved(tmp_path: Path) -> None:
    proved, older = save(tmp_path, 20), save(tmp_path, 10)
    first, second = save(tmp_path, 30), save(tmp_path, 40, whole=False)
    done, steps = set_aside(tmp_path, proved, older, first)
    assert done == [str(second), str(first)]
    hidden = [".damaged.checkpoint%2D30", ".damaged.checkpoint%2D40"]
    assert names(tmp_path) == [*hidden, "checkpoint-10", "checkpoint-20"]
    assert steps[0] == ("set_aside", {"path": str(second), "name": hidden[1]})
    # one command undoes it
    (tmp_path / hidden[1]).rename(tmp_path / unquote(hidden[1].removeprefix(PREFIX)))
    assert second.exists()


@pytest.mark.parametrize("hindrance", ["nothing proved", "account", "no damage", "taken name"])
def test_without_these_no_checkpoint_is_renamed(tmp_path: Path, hindrance: str) -> None:
    proved, damaged = save(tmp_path, 20), save(tmp_path, 30)
    if hindrance == "taken name":
        (tmp_path / ignored_name(damaged.name)).mkdir()
    before = names(tmp_path)
    assert set_aside(
        tmp_path,
        "" if hindrance == "nothing proved" else proved,  # the run would begin from its first step
        *([] if hindrance == "no damage" else [damaged]),
        account=ACCOUNT + (hindrance == "account"),
    ) == ([], [])
    assert names(tmp_path) == before


def test_a_save_that_may_be_under_way_and_a_link_are_left_alone(tmp_path: Path) -> None:
    proved = save(tmp_path / "run", 20)
    save(tmp_path / "run", 30, ago=30, whole=False)
    assert set_aside(tmp_path / "run", proved) == ([], [])
    elsewhere, folder = save(tmp_path / "elsewhere", 40), tmp_path / "other"
    proved = save(folder, 20)
    (folder / "checkpoint-40").symlink_to(elsewhere)
    assert set_aside(folder, proved, folder / "checkpoint-40") == ([], [])
    assert elsewhere.exists()


OWN: dict[str, Any] = {
    "name": "model",
    "folder": ".",
    "complete": {"settled": ["*"]},
}


def save_file(folder: Path, name: str, content: bytes, *, ago: float) -> Path:
    path = folder / name
    path.write_bytes(content)
    moment = FileSystem().status(str(path)).st_mtime - ago
    os.utime(path, (moment, moment))
    return path


def set_own_aside(path: Path, proved: Path, entry: str) -> list[str]:
    own = {"name": "demo", "path": str(path), "checkpoints": [OWN | {"entry": entry}]}
    specs = checkpoint_specs(RunConfig.model_validate(own))
    return DamagedCheckpoints(specs).set_aside(str(proved), (), ACCOUNT, lambda *_, **__: None)


def test_of_own_checkpoints_a_half_and_an_empty_file_are_renamed(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("archive/data.pkl", bytes(1000))
    proved = save_file(tmp_path, "step_10.pt", content.getvalue(), ago=200)
    half = save_file(tmp_path, "step_20.pt", content.getvalue()[:500], ago=20)
    empty = save_file(tmp_path, "step_30.pt", b"", ago=20)
    assert set_own_aside(tmp_path, proved, r"step_(?P<step>\d+)\.pt") == [str(empty), str(half)]
    assert names(tmp_path) == [".damaged.step%5F20%2Ept", ".damaged.step%5F30%2Ept", "step_10.pt"]


def test_an_own_checkpoint_that_only_has_to_settle_is_left_alone(tmp_path: Path) -> None:
    proved = save_file(tmp_path, "step_10.bin", b"weights", ago=200)
    newest = save_file(tmp_path, "step_20.bin", b"weights", ago=20)
    assert set_own_aside(tmp_path, proved, r"step_(?P<step>\d+)\.bin") == []
    assert newest.exists()


def test_what_no_journal_records_is_not_renamed(tmp_path: Path) -> None:
    proved, damaged = save(tmp_path, 20), save(tmp_path, 30)
    run = RunConfig.model_validate({"name": "demo", "framework": "trl", "path": str(tmp_path)})

    def fail(step: str, **facts: Any) -> None:
        raise JournalError(f"{step} {facts}")

    with pytest.raises(JournalError):
        DamagedCheckpoints(checkpoint_specs(run)).set_aside(
            str(proved), {str(damaged)}, ACCOUNT, fail
        )
    assert damaged.exists()


def test_a_framework_that_reads_a_tracker_file_or_a_record_chooses_otherwise() -> None:
    highest = {
        framework.name
        for framework in FRAMEWORKS
        for layout in framework.checkpoints[:1]
        if takes_highest(layout)
    }
    assert highest == {"prime_rl", "trl", "nemo_rl", "torchtitan", "lightning"}


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("checkpoint-200", r"checkpoint-(\d+)"),
        ("step-200", r"step-(\d+)"),
        ("step_200", r"step_(\d+)"),
        ("epoch=1-step=200.ckpt", r"step=(\d+)|\.ckpt$"),
    ],
)
def test_no_pattern_of_a_framework_finds_the_new_name(name: str, pattern: str) -> None:
    assert re.search(pattern, name)
    assert not re.search(pattern, ignored_name(name))
    assert unquote(ignored_name(name).removeprefix(PREFIX)) == name
