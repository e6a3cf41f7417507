"""What the disks are judged by before a run starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.config import Config
from trainwarden_exporter.disk import checks
from trainwarden_exporter.disk.probe import Measurement
from trainwarden_exporter.disk.space import Space
from trainwarden_exporter.disk.view import DiskView
from trainwarden_exporter.findings import Finding, Subject

GIB = 1 << 30
SPACE = Space(100 * GIB, 40 * GIB, 1000, 900, read_only=False, mount=None)
FAST = Measurement(latency=0.004, bytes_per_second=800_000_000.0)
SLOW = Measurement(latency=0.2, bytes_per_second=30_000_000.0)


def disk(path: str = "/data", **more: Any) -> DiskView:
    plain = {"space": SPACE, "floor": 5 * GIB, "measurement": FAST}
    return DiskView(Path(path), **{**plain, **more})


def free(amount: float) -> Space:
    return replace(SPACE, free=int(amount * GIB))


def judged(check: Callable[[Subject], Finding | None], *disks: DiskView) -> tuple[str, str]:
    finding = check(Subject(Config(), disks=disks))
    assert finding is not None
    return finding.verdict, " | ".join((finding.seen, *finding.details))


@pytest.mark.parametrize(
    "check",
    [checks.check_space, checks.check_inodes, checks.check_writable, checks.check_speed],
)
def test_without_disks_nothing_is_said(check: Callable[[Subject], Finding | None]) -> None:
    assert check(Subject(Config())) is None


class TestSpace:
    def test_is_told(self) -> None:
        assert judged(checks.check_space, disk()) == ("ok", "/data: 40.0 GiB free")

    @pytest.mark.parametrize(
        ("gib", "verdict"), [(5, "ok"), (4.9, "warn"), (0.51, "warn"), (0.49, "refuse")]
    )
    def test_is_judged_by_what_should_stay_free(self, gib: float, verdict: str) -> None:
        given, said = judged(checks.check_space, disk(space=free(gib)))
        assert given == verdict
        assert ("5.0 GiB should be" in said) == (verdict != "ok")

    @pytest.mark.parametrize(("gib", "verdict"), [(30, "ok"), (29, "warn"), (9, "refuse")])
    def test_is_judged_by_checkpoints_where_one_is_known(self, gib: float, verdict: str) -> None:
        one = disk(space=free(gib), checkpoint=10 * GIB)
        given, said = judged(checks.check_space, one)
        assert given == verdict
        assert f"room for {gib / 10:.1f} checkpoints of 10.0 GiB" in said

    def test_of_the_worst_disk_decides_and_all_are_told(self) -> None:
        given, said = judged(checks.check_space, disk(), disk("/full", space=free(0)))
        assert given == "refuse"
        assert said == (
            "there is no room | /data: 40.0 GiB free | /full: 0 B free, 5.0 GiB should be"
        )

    def test_of_a_disk_that_does_not_answer_refuses(self) -> None:
        dead = DiskView(Path("/dead"), trouble="it has not answered within 10 s")
        assert judged(checks.check_space, dead) == (
            "refuse",
            "there is no room | /dead: it has not answered within 10 s",
        )
        assert checks.check_writable(Subject(Config(), disks=(dead,))) is None

    def test_is_passed_over_where_it_is_not_known(self) -> None:
        unknown = disk(space=replace(SPACE, size=None, free=None), floor=None)
        assert checks.check_space(Subject(Config(), disks=(unknown,))) is None


@pytest.mark.parametrize(
    ("left", "verdict"), [(900, "ok"), (50, "ok"), (49, "warn"), (10, "warn"), (9, "refuse")]
)
def test_files_that_can_still_be_made_are_judged(left: int, verdict: str) -> None:
    one = disk(space=replace(SPACE, free_inodes=left))
    assert judged(checks.check_inodes, one)[0] == verdict
    endless = disk(space=replace(SPACE, inodes=None, free_inodes=None))
    assert checks.check_inodes(Subject(Config(), disks=(endless,))) is None


def test_a_folder_that_cannot_be_written_to_refuses() -> None:
    assert judged(checks.check_writable, disk())[0] == "ok"
    given, said = judged(checks.check_writable, disk(), disk("/ro", unwritable="Read-only"))
    assert given == "refuse"
    assert said == "one cannot be written to | /data: writable | /ro: Read-only"


class TestSpeed:
    def test_is_told(self) -> None:
        given, said = judged(checks.check_speed, disk())
        assert (given, said) == ("ok", "/data: 763 MiB/s, 4 ms to a new file")

    def test_that_is_low_is_worth_a_warning(self) -> None:
        given, said = judged(checks.check_speed, disk(measurement=SLOW))
        assert given == "warn"
        assert "28.6 MiB/s, 200 ms to a new file; 95.4 MiB/s should be" in said
        assert judged(checks.check_speed, disk(measurement=SLOW, speed_floor=1))[0] == "ok"

    def test_that_is_not_known_in_time_is_worth_one_too(self) -> None:
        assert judged(checks.check_speed, disk(measurement=None, stuck=True))[0] == "warn"

    def test_that_was_not_measured_is_passed_over(self) -> None:
        one = disk(measurement=None)
        assert checks.check_speed(Subject(Config(), disks=(one,))) is None
