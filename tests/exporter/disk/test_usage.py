from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.disk.config import DiskConfig
from trainwarden_exporter.disk.usage import free_floor, read_disk_usage

if TYPE_CHECKING:
    from tests.exporter.conftest import Mount

GIB = 1 << 30


def test_a_disk_is_measured_as_df_does(tmp_path: Path) -> None:
    space, vfs = read_disk_usage(tmp_path), os.statvfs(tmp_path)
    assert space.size == vfs.f_blocks * vfs.f_frsize
    assert space.free == pytest.approx(vfs.f_bavail * vfs.f_frsize, rel=0.05)
    assert space.mount is not None
    assert str(tmp_path).startswith(space.mount.point.rstrip("/"))


def test_a_path_that_is_not_there_is_an_error_or_stands_for_what_is_above(tmp_path: Path) -> None:
    missing = tmp_path / "outputs" / "exp"
    with pytest.raises(FileNotFoundError):
        read_disk_usage(missing)
    assert read_disk_usage(missing, or_above=True).mount == read_disk_usage(tmp_path).mount
    (tmp_path / "file").touch()
    below_a_file = tmp_path / "file" / "exp"
    assert read_disk_usage(below_a_file, or_above=True).mount == read_disk_usage(tmp_path).mount


def test_what_is_reserved_for_root_is_not_free_and_inodes_are_counted(
    tmp_path: Path, mount: Mount
) -> None:
    point = tmp_path / "small"
    mount(point, "-t", "tmpfs", "-o", "size=1m,nr_inodes=10", "small")
    space = read_disk_usage(point)
    assert (space.size, space.free) == (1 << 20, 1 << 20)
    assert (space.inodes, space.free_inodes) == (10, 9)
    (point / "one").write_bytes(b"x" * 4096)
    space = read_disk_usage(point)
    assert (space.free, space.free_inodes) == ((1 << 20) - 4096, 8)


def test_a_file_system_without_numbers_of_its_own_tells_none() -> None:
    space = read_disk_usage(Path("/proc"))
    assert (space.size, space.free, space.inodes, space.free_inodes) == (None, None, None, None)


def test_a_read_only_bind_of_a_writable_disk_is_read_only(tmp_path: Path, mount: Mount) -> None:
    source, bound = tmp_path / "source", tmp_path / "bound"
    source.mkdir()
    mount(bound, "--bind", str(source))
    assert not read_disk_usage(bound).read_only
    mount(bound, "-o", "remount,bind,ro")
    assert read_disk_usage(bound).read_only
    assert not read_disk_usage(source).read_only


def test_a_large_disk_needs_no_more_than_twenty_gib_free(tmp_path: Path) -> None:
    usage = read_disk_usage(tmp_path)
    assert free_floor(None, replace(usage, size=100 * GIB)) == 5 * GIB
    assert free_floor(None, replace(usage, size=100_000 * GIB)) == 20 * GIB
    assert free_floor(None, replace(usage, size=None)) is None


def test_a_configured_floor_replaces_the_default(tmp_path: Path) -> None:
    disk = DiskConfig(path=tmp_path, free_floor="3B")
    assert free_floor(disk, read_disk_usage(tmp_path)) == 3
