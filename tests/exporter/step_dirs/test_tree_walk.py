from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.step_dirs.filesystem import FileSystem
from trainwarden_exporter.step_dirs.tree_walk import is_temporary, walk

if TYPE_CHECKING:
    from tests.exporter.step_dirs.conftest import MemoryDisk


def test_all_files_are_found_by_their_paths_inside(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / ".metadata").write_text("abc")
    (tmp_path / "config.json").write_text("{}")
    os.utime(tmp_path / "config.json", (1_000, 1_000.5))

    found = walk(FileSystem(), str(tmp_path))

    assert {path: file.size for path, file in found.files.items()} == {
        "trainer/.metadata": 3,
        "config.json": 2,
    }
    assert found.files["config.json"].modified == 1_000.5
    assert found.stamp.modified == pytest.approx(tmp_path.stat().st_mtime)
    assert not found.changed_during_walk
    assert not found.truncated


def test_an_entry_may_be_a_file_and_a_link_may_lead_to_it(tmp_path: Path) -> None:
    (tmp_path / "step=1.ckpt").write_text("weights")
    (tmp_path / "step=2.ckpt").symlink_to("step=1.ckpt")
    assert walk(FileSystem(), str(tmp_path / "step=1.ckpt")).files[""].size == 7
    assert walk(FileSystem(), str(tmp_path / "step=2.ckpt")).files[""].size == 7


def test_links_to_files_count_and_links_to_folders_lead_nowhere(tmp_path: Path) -> None:
    entry, blobs = tmp_path / "step_1", tmp_path / "blobs"
    entry.mkdir()
    blobs.mkdir()
    (blobs / "a").write_text("weights")
    (entry / "model").symlink_to(blobs / "a")
    (entry / "blobs").symlink_to(blobs)
    (entry / "self").symlink_to(entry)
    (entry / "circle").symlink_to("circle")
    (entry / "broken").symlink_to("nowhere")

    found = walk(FileSystem(), str(entry))

    assert {path: file.size for path, file in found.files.items()} == {"model": 7}
    assert not found.changed_during_walk


def test_what_is_no_file_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert walk(FileSystem(), str(tmp_path)).files == {}
    assert walk(FileSystem(), str(tmp_path / "pipe")).files == {}


def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    name = os.fsdecode(b"w\xff\n.bin")
    (tmp_path / name).write_text("x")
    assert list(walk(FileSystem(), str(tmp_path)).files) == [name]


def test_an_entry_that_is_gone_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        walk(FileSystem(), str(tmp_path / "step_1"))


@pytest.mark.parametrize(
    ("vanishing", "changed_during_walk"),
    [("weights", True), ("weights.tmp", False), ("optimizer/shard_0", True), ("optimizer", True)],
)
def test_what_goes_away_meanwhile_is_noticed(
    filesystem: MemoryDisk, vanishing: str, *, changed_during_walk: bool
) -> None:
    for path in ("weights", "weights.tmp", "optimizer/shard_0"):
        filesystem.write(f"step_1/{path}")

    def take_away() -> None:
        if filesystem.asked and filesystem.asked[-1].startswith("names step_1"):
            filesystem.before_each = lambda: None
            filesystem.remove(f"step_1/{vanishing}")

    filesystem.before_each = take_away
    if vanishing == "optimizer/shard_0":  # in the moment after its folder was read
        filesystem.before_each = lambda: (
            take_away()
            if filesystem.asked and filesystem.asked[-1] == "names step_1/optimizer/"
            else None
        )

    assert walk(filesystem, "step_1").changed_during_walk is changed_during_walk


def test_an_entry_without_end_is_cut(filesystem: MemoryDisk) -> None:
    for number in range(30):
        filesystem.write(f"step_1/folder_{number}/file")
    assert walk(filesystem, "step_1", max_files=20).truncated
    assert len(filesystem.asked) <= 22


def test_a_file_closed_to_us_is_an_error(filesystem: MemoryDisk) -> None:
    filesystem.write("step_1/weights")
    filesystem.failing["step_1/weights"] = PermissionError(errno.EACCES, "denied")
    with pytest.raises(PermissionError):
        walk(filesystem, "step_1")


@pytest.mark.parametrize(
    ("name", "passing"),
    [
        (".metadata.tmp", True),
        ("rank_0.bin.tmp", True),
        ("a/tmp1x2y", True),
        ("model.safetensors.lock", True),
        ("model.tmp.safetensors", True),
        (".nfs0001", True),
        (".metadata", False),
        ("model-00001-of-00002.safetensors", False),
        ("template.json", False),
        ("tmp/weights", False),
    ],
)
def test_a_name_tells_what_is_meant_to_go_away(name: str, *, passing: bool) -> None:
    assert is_temporary(name) is passing
