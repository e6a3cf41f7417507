"""What the disks are judged by before a run starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.config import Config
from trainwarden_exporter.disk.usage import DiskUsage
from trainwarden_exporter.disk.write_probe import Measurement
from trainwarden_exporter.preflight import disk as disk_checks
from trainwarden_exporter.preflight.disk_snapshot import DiskSnapshot, take_disk_snapshots
from trainwarden_exporter.preflight.report import Finding, PreflightContext

GIB = 1 << 30
SPACE = DiskUsage(100 * GIB, 40 * GIB, 1000, 900, read_only=False, mount=None)
FAST = Measurement(latency=0.004, bytes_per_second=800_000_000.0)
SLOW = Measurement(latency=0.2, bytes_per_second=30_000_000.0)


def disk(path: str = "/data", **more: Any) -> DiskSnapshot:
    plain = {"disk_usage": SPACE, "floor": 5 * GIB, "measurement": FAST}
    return DiskSnapshot(Path(path), **{**plain, **more})


def free(amount: float) -> DiskUsage:
    return replace(SPACE, free=int(amount * GIB))


def results(
    check: Callable[[PreflightContext], Finding | None], *disks: DiskSnapshot
) -> tuple[str, str]:
    finding = check(PreflightContext(Config(), disks=disks))
    assert finding is not None
    return finding.result, " | ".join((finding.observed, *finding.details))


@pytest.mark.parametrize(
    "check",
    [
        disk_checks.check_space,
        disk_checks.check_inodes,
        disk_checks.check_writable,
        disk_checks.check_speed,
    ],
)
def test_without_disks_there_is_no_line(
    check: Callable[[PreflightContext], Finding | None],
) -> None:
    assert check(PreflightContext(Config())) is None


class TestSpace:
    def test_is_reported(self) -> None:
        assert results(disk_checks.check_space, disk()) == ("ok", "/data: 40.0 GiB free")

    @pytest.mark.parametrize(
        ("gib", "result"), [(5, "ok"), (4.9, "warn"), (0.51, "warn"), (0.49, "refuse")]
    )
    def test_is_judged_by_what_should_stay_free(self, gib: float, result: str) -> None:
        given, message = results(disk_checks.check_space, disk(disk_usage=free(gib)))
        assert given == result
        assert ("minimum 5.0 GiB" in message) == (result != "ok")

    @pytest.mark.parametrize(
        ("size", "count"), [(10 * GIB, "3.0"), (3 * GIB, "10"), (1 << 20, "over 1,000")]
    )
    def test_many_checkpoints_are_counted_whole(self, size: int, count: str) -> None:
        _, message = results(disk_checks.check_space, disk(disk_usage=free(30), checkpoint=size))
        assert f"room for {count} checkpoints of " in message

    @pytest.mark.parametrize(("gib", "result"), [(30, "ok"), (29, "warn"), (9, "refuse")])
    def test_is_judged_by_checkpoints_where_one_is_known(self, gib: float, result: str) -> None:
        one = disk(disk_usage=free(gib), checkpoint=10 * GIB)
        given, message = results(disk_checks.check_space, one)
        assert given == result
        room = "not even one checkpoint" if result == "refuse" else f"{gib / 10:.1f} checkpoints"
        assert f"room for {room} of 10.0 GiB" in message

    def test_of_the_worst_disk_decides_and_all_are_reported(self) -> None:
        given, message = results(disk_checks.check_space, disk(), disk("/full", disk_usage=free(0)))
        assert given == "refuse"
        assert message == (
            "no free space | /data: 40.0 GiB free | /full: 0 B free, minimum 5.0 GiB"
        )

    def test_of_a_disk_that_does_not_answer_refuses(self) -> None:
        dead = DiskSnapshot(Path("/dead"), problem="no answer within 10 s")
        assert results(disk_checks.check_space, dead) == (
            "refuse",
            "no free space | /dead: no answer within 10 s",
        )
        assert disk_checks.check_writable(PreflightContext(Config(), disks=(dead,))) is None

    def test_is_passed_over_where_it_is_not_known(self) -> None:
        unknown = disk(disk_usage=replace(SPACE, size=None, free=None), floor=None)
        assert disk_checks.check_space(PreflightContext(Config(), disks=(unknown,))) is None


@pytest.mark.parametrize(
    ("left", "result"), [(900, "ok"), (50, "ok"), (49, "warn"), (10, "warn"), (9, "refuse")]
)
def test_files_that_can_still_be_made_are_judged(left: int, result: str) -> None:
    one = disk(disk_usage=replace(SPACE, free_inodes=left))
    assert results(disk_checks.check_inodes, one)[0] == result
    endless = disk(disk_usage=replace(SPACE, inodes=None, free_inodes=None))
    assert disk_checks.check_inodes(PreflightContext(Config(), disks=(endless,))) is None


def test_a_folder_that_cannot_be_written_to_refuses() -> None:
    assert results(disk_checks.check_writable, disk())[0] == "ok"
    given, message = results(
        disk_checks.check_writable, disk(), disk("/ro", unwritable="Read-only")
    )
    assert given == "refuse"
    assert message == "a folder is missing or not writable | /data: writable | /ro: Read-only"


class TestSpeed:
    def test_is_reported(self) -> None:
        given, message = results(disk_checks.check_speed, disk())
        assert (given, message) == ("ok", "/data: 763 MiB/s, 4 ms for a new file")

    def test_that_is_low_is_worth_a_warning(self) -> None:
        given, message = results(disk_checks.check_speed, disk(measurement=SLOW))
        assert given == "warn"
        assert "28.6 MiB/s, 200 ms for a new file; minimum 95.4 MiB/s" in message
        assert results(disk_checks.check_speed, disk(measurement=SLOW, speed_floor=1))[0] == "ok"

    def test_that_is_not_known_in_time_is_worth_one_too(self) -> None:
        assert results(disk_checks.check_speed, disk(measurement=None, stuck=True))[0] == "warn"

    def test_that_was_not_measured_is_passed_over(self) -> None:
        one = disk(measurement=None)
        assert disk_checks.check_speed(PreflightContext(Config(), disks=(one,))) is None


def test_a_folder_that_does_not_exist_refuses(tmp_path: Path) -> None:
    run = Config.model_validate({"runs": [{"name": "a", "path": str(tmp_path / "typo")}]}).runs
    (snapshot,) = take_disk_snapshots((), run)
    assert results(disk_checks.check_writable, snapshot)[0] == "refuse"
