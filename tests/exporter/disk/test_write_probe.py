from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.disk import write_probe
from trainwarden_exporter.disk.write_probe import (
    FILE_PREFIX,
    WriteProbe,
    has_free_space,
    measure,
    remove_leftovers,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.exporter.conftest import Mount

MIB = 1 << 20


class Clock:
    """Goes on by a second at each look."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return float(self.looks)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How large the file was at each fsync."""
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    return sizes


class TestAMeasurement:
    def test_is_of_a_file_that_is_gone_afterwards(self, tmp_path: Path) -> None:
        measured = measure(tmp_path, 2 * MIB)
        assert list(tmp_path.iterdir()) == []
        assert measured.latency > 0
        assert measured.bytes_per_second > MIB

    def test_waits_for_the_disk_after_the_first_block_and_after_all(
        self, tmp_path: Path, synced: list[int]
    ) -> None:
        measured = measure(tmp_path, 3 * MIB + 5, clock=Clock())
        assert synced == [4096, 3 * MIB + 5]
        # a second for each look at the clock: before, after the first block, before each further
        # MiB but the first, and after all
        assert measured.latency == 1
        assert measured.bytes_per_second == (3 * MIB + 5 - 4096) / 3

    def test_writes_no_more_once_that_takes_too_long(
        self, tmp_path: Path, synced: list[int]
    ) -> None:
        measure(tmp_path, 100 * MIB, limit=3, clock=Clock())
        assert synced == [4096, 4096 + 3 * MIB]

    def test_leaves_nothing_where_it_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            measure(tmp_path, MIB)
        assert list(tmp_path.iterdir()) == []

    def test_writes_what_cannot_be_compressed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        contents: list[bytes] = []
        monkeypatch.setattr(
            os, "fsync", lambda _: contents.append(next(tmp_path.iterdir()).read_bytes())
        )
        measure(tmp_path, MIB)
        assert len(set(contents[-1])) == 256


class TestAProbe:
    def test_says_how_it_went(self, tmp_path: Path) -> None:
        probed = WriteProbe(tmp_path, MIB)()
        assert (probed.success, probed.failures) == (True, 0)
        assert probed.measurement is not None

    def test_counts_failures_and_logs_the_first(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        look = WriteProbe(tmp_path / "later", MIB)
        with caplog.at_level(logging.WARNING):
            assert [look().failures, look().failures] == [1, 2]
        assert [record.message for record in caplog.records] == ["disk probe failed"]
        assert look().measurement is None
        (tmp_path / "later").mkdir()
        probed = look()
        assert (probed.success, probed.failures) == (True, 3)

    def test_fails_where_it_may_not_write(
        self, tmp_path: Path, as_nobody: Callable[[], AbstractContextManager[None]]
    ) -> None:
        tmp_path.chmod(0o755)
        look = WriteProbe(tmp_path, MIB)
        with as_nobody():
            assert look().success is False

    def test_writes_nothing_where_little_is_free(self, tmp_path: Path, mount: Mount) -> None:
        point = tmp_path / "small"
        mount(point, "-t", "tmpfs", "-o", "size=16m", "small")
        look = WriteProbe(point, 8 * MIB)
        assert look().success is True
        (point / "checkpoint").write_bytes(bytes(MIB))
        probed = look()
        assert (probed.success, probed.measurement, probed.failures) == (None, None, 0)
        assert [entry.name for entry in point.iterdir()] == ["checkpoint"]
        # enough for a small file, and yet near the end of the disk
        (point / "checkpoint").write_bytes(bytes(15 * MIB + MIB // 2))
        assert not has_free_space(point, 4096)

    def test_removes_what_a_crash_has_left(self, tmp_path: Path) -> None:
        old, young = tmp_path / f"{FILE_PREFIX}old", tmp_path / f"{FILE_PREFIX}young"
        other = tmp_path / "checkpoint"
        for file in (old, young, other):
            file.touch()
        for file in (old, other):
            os.utime(file, (1000, time.time() - 2 * write_probe.LEFTOVER_SECONDS))
        WriteProbe(tmp_path, MIB)()
        assert {file.name for file in tmp_path.iterdir()} == {young.name, other.name}

    def test_leaves_a_link_of_such_a_name_pointing_where_it_does(self, tmp_path: Path) -> None:
        target = tmp_path / "target"
        target.touch()
        (tmp_path / f"{FILE_PREFIX}link").symlink_to(target)
        remove_leftovers(tmp_path, older_than=time.time() + 10)
        assert [file.name for file in tmp_path.iterdir()] == ["target"]
