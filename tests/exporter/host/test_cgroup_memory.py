from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.host.cgroup_memory import (
    CgroupUsage,
    MemoryPressure,
    find_memory_cgroup,
    parse_counts,
    parse_limit,
    parse_pressure,
    read_cgroup_usage,
    read_oom_kills,
    read_optional,
)

NONE_V1 = 9223372036854771712


def v2(folder: Path, limit: str = "max", usage: int = 0, inactive: int = 0, kills: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {inactive}\n")
    (folder / "memory.events").write_text(f"low 0\noom 3\noom_kill {kills}\n")
    return folder


def v1(folder: Path, limit: int = NONE_V1, usage: int = 0, inactive: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"inactive_file 1\ntotal_inactive_file {inactive}\n")
    (folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    return folder


def cgroup_usage(root: Path, folder: Path | None = None) -> CgroupUsage | None:
    cgroup = find_memory_cgroup(root, folder)
    assert cgroup is not None
    return read_cgroup_usage(cgroup)


def kills(root: Path) -> int | None:
    cgroup = find_memory_cgroup(root)
    assert cgroup is not None
    return read_oom_kills(cgroup)


@pytest.mark.parametrize(
    ("text", "limit"),
    [("max\n", None), (f"{NONE_V1}\n", None), ("9223372036854710272\n", None), ("1024\n", 1024)],
)
def test_no_limit_is_written_in_two_ways(text: str, limit: int | None) -> None:
    assert parse_limit(text) == limit


def test_pressure_is_in_seconds() -> None:
    some = "some avg10=1.67 avg60=1.25 avg300=0.33 total=4317843\n"
    full = "full avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n"

    assert parse_pressure(some + full) == MemoryPressure(4.317843, 0.5)
    assert parse_pressure(some) == MemoryPressure(4.317843, None)


def test_counts_are_names_and_numbers() -> None:
    assert parse_counts("low 0\noom_kill 12\n") == {"low": 0, "oom_kill": 12}


class TestWhichCgroup:
    def test_of_a_machine_without_a_memory_controller_there_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "unified").mkdir()

        assert find_memory_cgroup(tmp_path) is None
        assert find_memory_cgroup(tmp_path, tmp_path / "unified") is None

    def test_the_root_of_a_whole_machine_is_none_in_v2(self, tmp_path: Path) -> None:
        (tmp_path / "memory.stat").write_text("inactive_file 1\n")
        (tmp_path / "memory.pressure").write_text("some avg10=0 total=1\n")
        v2(tmp_path / "system.slice" / "exporter.service", "512")

        assert find_memory_cgroup(tmp_path) is None

    def test_the_visible_root_is_the_containers_own(self, tmp_path: Path) -> None:
        assert cgroup_usage(v2(tmp_path, "1000", usage=300)) == CgroupUsage(1000, 300)

    def test_in_v1_it_lies_a_level_lower(self, tmp_path: Path) -> None:
        v1(tmp_path / "memory", 1000, usage=300, inactive=100)

        assert cgroup_usage(tmp_path) == CgroupUsage(1000, 200)

    def test_a_hybrid_machine_keeps_memory_in_v1(self, tmp_path: Path) -> None:
        (tmp_path / "unified").mkdir()
        (tmp_path / "unified" / "cgroup.controllers").write_text("\n")
        v1(tmp_path / "memory", 1000)

        assert cgroup_usage(tmp_path) == CgroupUsage(1000, 0)

    def test_the_named_cgroup_counts(self, tmp_path: Path) -> None:
        v2(tmp_path / "training", "500", usage=100)

        assert cgroup_usage(tmp_path, tmp_path / "training") == CgroupUsage(500, 100)


class TestAllowance:
    def test_of_a_cgroup_without_a_limit_there_is_none(self, tmp_path: Path) -> None:
        assert cgroup_usage(v2(tmp_path / "v2", "max", usage=5)) is None
        v1(tmp_path / "v1" / "memory", NONE_V1, usage=5)
        assert cgroup_usage(tmp_path / "v1") is None

    def test_page_cache_not_in_use_is_not_held(self, tmp_path: Path) -> None:
        found = cgroup_usage(v2(tmp_path, "1000", usage=900, inactive=600))

        assert found == CgroupUsage(1000, 300)
        assert found is not None
        assert found.available_bytes == 700

    def test_the_working_set_is_never_negative(self, tmp_path: Path) -> None:
        assert cgroup_usage(v2(tmp_path, "1000", usage=10, inactive=20)) == CgroupUsage(1000, 0)

    def test_available_memory_ends_at_the_limit(self) -> None:
        assert CgroupUsage(1000, 1200).available_bytes == 0

    @pytest.mark.parametrize(
        ("outer", "inner", "tightest"),
        [
            (("1000", 900), ("800", 100), CgroupUsage(1000, 900)),
            (("1000", 200), ("800", 150), CgroupUsage(800, 150)),
            (("max", 200), ("800", 150), CgroupUsage(800, 150)),
            (("1000", 200), ("max", 150), CgroupUsage(1000, 200)),
        ],
    )
    def test_a_cgroup_above_may_leave_less(
        self, tmp_path: Path, outer: tuple[str, int], inner: tuple[str, int], tightest: CgroupUsage
    ) -> None:
        v2(tmp_path / "slice", *outer)
        v2(tmp_path / "slice" / "job", *inner)

        assert cgroup_usage(tmp_path, tmp_path / "slice" / "job") == tightest

    def test_in_v1_too(self, tmp_path: Path) -> None:
        v1(tmp_path / "memory", 1000, usage=950)
        v1(tmp_path / "memory" / "job", 800, usage=100)

        assert cgroup_usage(tmp_path, tmp_path / "memory" / "job") == CgroupUsage(1000, 950)


class TestOomKills:
    def test_are_counted_by_both_versions(self, tmp_path: Path) -> None:
        assert kills(v2(tmp_path / "v2", kills=4)) == 4
        v1(tmp_path / "v1" / "memory")
        assert kills(tmp_path / "v1") == 2

    def test_are_not_counted_by_old_kernels(self, tmp_path: Path) -> None:
        v1(tmp_path / "memory")
        (tmp_path / "memory" / "memory.oom_control").write_text("oom_kill_disable 0\n")

        assert kills(tmp_path) is None


def test_a_file_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    v2(tmp_path, "much")

    with pytest.raises(CollectError, match=r"cannot understand .*/memory\.max: .*much"):
        cgroup_usage(tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CollectError, match=r"cannot read .*: Is a directory"):
        read_optional(tmp_path, int)
