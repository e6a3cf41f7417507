from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainwarden_exporter.checkpoints.recovery_info import RecoveryRecord, read_recovery
from trainwarden_exporter.frameworks.base import RecoveryLayout
from trainwarden_exporter.frameworks.path_resolution import resolve
from trainwarden_exporter.step_dirs.filesystem import FileSystem

LAYOUT = RecoveryLayout(
    file="{trial}/recover_info/step_info.json",
    step=r'"global_step"\s*:\s*(?P<step>\d+)',
    step_offset=1,
    newer="{trial}/default/recover_checkpoint/.metadata",
    written_last="{trial}/recover_info/dataloader_info.pkl",
)
PLAIN = RecoveryLayout(file="state.json", step=r"step=(?P<step>\d+)")


def write(path: Path, moment: float, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (moment, moment))


def read(path: Path, layout: RecoveryLayout = LAYOUT) -> RecoveryRecord | None:
    templates = [layout.file, layout.newer, layout.written_last]
    instance = resolve(path, [template for template in templates if template], {"trial": "t"})
    return read_recovery(layout, path, instance, FileSystem())


def record(path: Path, *, step: int = 1869, checkpoint: float = 1_000, info: float = 1_010) -> None:
    write(path / "t/default/recover_checkpoint/__0_0.distcp", checkpoint - 5)
    write(path / "t/default/recover_checkpoint/.metadata", checkpoint)
    write(path / "t/recover_info/step_info.json", info, f'{{"global_step": {step}}}')
    write(path / "t/recover_info/dataloader_info.pkl", info)


def test_a_record_tells_its_step_and_is_whole(tmp_path: Path) -> None:
    record(tmp_path)
    assert read(tmp_path) == RecoveryRecord(1870, is_complete=True, written_at=1_010)


def test_there_may_be_none(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    # the framework's own check makes these
    (tmp_path / "t/recover_info/recover_checkpoint").mkdir(parents=True)
    assert read(tmp_path) is None


def test_a_checkpoint_that_is_being_overwritten_makes_the_record_worthless(tmp_path: Path) -> None:
    record(tmp_path)
    write(tmp_path / "t/default/recover_checkpoint/__0_0.distcp", 2_000)
    assert read(tmp_path) == RecoveryRecord(1870, is_complete=False)


def test_a_checkpoint_without_its_new_record_too(tmp_path: Path) -> None:
    record(tmp_path)
    write(tmp_path / "t/default/recover_checkpoint/.metadata", 2_000)
    assert read(tmp_path) == RecoveryRecord(1870, is_complete=False)


def test_a_record_that_was_not_written_to_its_end_is_not_whole(tmp_path: Path) -> None:
    record(tmp_path)
    write(tmp_path / "t/default/recover_checkpoint/.metadata", 2_000)
    write(tmp_path / "t/recover_info/step_info.json", 2_005, '{"global_step": 1899}')
    assert read(tmp_path) == RecoveryRecord(1900, is_complete=False)
    (tmp_path / "t/recover_info/dataloader_info.pkl").unlink()
    assert read(tmp_path) == RecoveryRecord(
        1900, is_complete=False, missing="recover_info/dataloader_info.pkl"
    )


def test_a_record_of_a_checkpoint_that_is_gone_is_not_whole(tmp_path: Path) -> None:
    record(tmp_path)
    (tmp_path / "t/default/recover_checkpoint").rename(tmp_path / "moved")
    assert read(tmp_path) == RecoveryRecord(
        1870, is_complete=False, missing="recover_checkpoint/.metadata"
    )


def test_an_older_version_saves_other_files(tmp_path: Path) -> None:
    record(tmp_path)
    checkpoint = tmp_path / "t/default/recover_checkpoint"
    (checkpoint / ".metadata").rename(checkpoint / "model.safetensors")
    assert read(tmp_path) == RecoveryRecord(1870, is_complete=True, written_at=1_010)


def test_a_file_that_does_not_tell_a_step_is_no_record(tmp_path: Path) -> None:
    record(tmp_path)
    write(tmp_path / "t/recover_info/step_info.json", 1_010, '{"global_st')
    assert read(tmp_path) == RecoveryRecord(None, is_complete=False)


def test_a_plain_file_is_whole_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "state.json", 1_000, "step=7")
    assert read(tmp_path, PLAIN) == RecoveryRecord(7, is_complete=True, written_at=1_000)


def test_a_resume_is_sound_from_a_whole_record_alone() -> None:
    whole = RecoveryRecord(1870, is_complete=True, written_at=1_010)
    assert whole.resume_points == [(1870, 1_010)]
    assert RecoveryRecord(1870, is_complete=False).resume_points == []


@pytest.mark.parametrize(
    ("recovery", "newest", "matches"),
    [
        (RecoveryRecord(1870, is_complete=True), 1870, True),
        (RecoveryRecord(1880, is_complete=True), 1870, True),
        (RecoveryRecord(1860, is_complete=True), 1870, False),
        (RecoveryRecord(1870, is_complete=False), 1870, False),
        (RecoveryRecord(None, is_complete=False), None, False),
        (RecoveryRecord(3, is_complete=True), None, True),
    ],
)
def test_a_record_matches_what_it_is_not_older_than(
    recovery: RecoveryRecord, newest: int | None, *, matches: bool
) -> None:
    assert recovery.matches(newest) is matches
