from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from pydantic import ValidationError

from trainwarden_exporter.collectors.host import HostCollector
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.host.cgroup_memory import CgroupUsage
from trainwarden_exporter.host.config import HostConfig
from trainwarden_exporter.host.memory import default_floor, effective_memory
from trainwarden_exporter.scrape.validation import validated

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30
MEMINFO = """MemTotal:       67108864 kB
MemFree:         1048576 kB
MemAvailable:   33554432 kB
Buffers:               0 kB
Cached:                0 kB
Active:                0 kB
Inactive:              0 kB
Shmem:                 0 kB
SwapTotal:       2097152 kB
SwapFree:        1048576 kB
HugePages_Total:       0
"""
STAT = "cpu  1 2 3\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\nbtime 1795227284\nprocesses 9\n"
PRESSURE = "some avg10=0.00 total=2500000\nfull avg10=0.00 total=1000000\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `proc` and an empty `cgroup`."""
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "proc" / "pressure").mkdir(parents=True)
    for name, text in {
        "meminfo": MEMINFO,
        "stat": STAT,
        "vmstat": "nr_free_pages 5\npswpin 0\npswpout 0\noom_kill 3\n",
        "pressure/memory": PRESSURE,
    }.items():
        (tmp_path / "proc" / name).write_text(text)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    monkeypatch.setattr(psutil, "getloadavg", lambda: (0.5, 1.25, 2.0))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    return tmp_path


def contain(machine: Path, limit: str = str(16 * GIB)) -> None:
    for name, text in {
        "memory.max": limit,
        "memory.current": str(13 * GIB),
        "memory.stat": f"inactive_file {GIB}",
        "memory.events": "oom_kill 7",
        "memory.pressure": PRESSURE.rstrip(),
    }.items():
        (machine / "cgroup" / name).write_text(f"{text}\n")


def collector(machine: Path, config: HostConfig | None = None) -> HostCollector:
    return HostCollector(
        config or HostConfig(), proc=machine / "proc", cgroup_root=machine / "cgroup"
    )


def samples(source: HostCollector) -> dict[str, float]:
    """Every sample by its short name, followed by the values of its labels."""
    return {
        " ".join([sample.name.removeprefix("trainwarden_"), *sample.labels.values()]): sample.value
        for family in validated(source.collect(), source.metrics)
        for sample in family.samples
    }


class TestAMachine:
    def test_is_seen_whole(self, machine: Path) -> None:
        assert samples(collector(machine)) == {
            "host_boot_timestamp_seconds": 1795227284,
            "host_cpus": 2,
            "host_load_average 1m": 0.5,
            "host_load_average 5m": 1.25,
            "host_load_average 15m": 2.0,
            "memory_total_bytes": 64 * GIB,
            "memory_available_bytes": 32 * GIB,
            "memory_swap_total_bytes": 2 * GIB,
            "memory_swap_free_bytes": GIB,
            "memory_effective_total_bytes": 64 * GIB,
            "memory_effective_available_bytes": 32 * GIB,
            "memory_available_floor_bytes": int(64 * GIB * 0.08),
            "memory_pressure_stalled_seconds_total host some": 2.5,
            "memory_pressure_stalled_seconds_total host full": 1.0,
            "memory_oom_kills_total host": 3,
        }

    def test_knows_when_the_last_process_was_killed_for_want_of_memory(self, machine: Path) -> None:
        kills, clock = machine / "proc" / "vmstat", iter((10.0, 20.0))
        source = HostCollector(
            HostConfig(), proc=machine / "proc", cgroup_root=machine / "cgroup", now=clock.__next__
        )
        name = "memory_last_oom_kill_timestamp_seconds host"
        assert name not in samples(source)  # those before are not known in time
        kills.write_text(kills.read_text().replace("oom_kill 3", "oom_kill 4"))
        assert samples(source)[name] == 10.0
        reloaded = collector(machine)
        reloaded.take_over_from(source)
        assert samples(reloaded)[name] == 10.0

    def test_may_lack_pressure_and_a_count_of_kills(self, machine: Path) -> None:
        (machine / "proc" / "pressure" / "memory").unlink()
        (machine / "proc" / "vmstat").write_text("pswpin 0\npswpout 0\n")
        found = samples(collector(machine))

        assert not [name for name in found if "pressure" in name or "oom" in name]
        assert found["memory_available_bytes"] == 32 * GIB

    @pytest.mark.filterwarnings("ignore:'sin' and 'sout' swap memory stats:RuntimeWarning")
    @pytest.mark.parametrize(
        ("name", "error"),
        [
            ("meminfo", r"psutil\.virtual_memory failed"),
            ("stat", r"psutil\.boot_time failed"),
            ("vmstat", "cannot understand .*/vmstat"),
            ("pressure/memory", "cannot understand .*/pressure/memory"),
        ],
    )
    def test_malformed_file_is_an_error_that_names_its_source(
        self, machine: Path, name: str, error: str
    ) -> None:
        (machine / "proc" / name).write_text("no sense at all\n")

        with pytest.raises(CollectError, match=error):
            samples(collector(machine))

    @pytest.mark.parametrize("name", ["meminfo", "stat"])
    def test_missing_file_is_an_error_that_names_it(self, machine: Path, name: str) -> None:
        (machine / "proc" / name).unlink()

        with pytest.raises(CollectError, match=f"/{name}"):
            samples(collector(machine))


class TestAContainer:
    def test_has_the_room_its_limit_leaves(self, machine: Path) -> None:
        contain(machine)
        found = samples(collector(machine))

        assert found["memory_cgroup_limit_bytes"] == 16 * GIB
        assert found["memory_cgroup_working_set_bytes"] == 12 * GIB
        assert found["memory_effective_total_bytes"] == 16 * GIB
        assert found["memory_effective_available_bytes"] == 4 * GIB
        assert found["memory_available_floor_bytes"] == int(16 * GIB * 0.08)
        assert found["memory_oom_kills_total cgroup"] == 7
        assert found["memory_pressure_stalled_seconds_total cgroup full"] == 1.0
        assert found["memory_total_bytes"] == 64 * GIB

    def test_without_a_limit_has_the_machines(self, machine: Path) -> None:
        contain(machine, limit="max")
        found = samples(collector(machine))

        assert "memory_cgroup_limit_bytes" not in found
        assert "memory_cgroup_working_set_bytes" not in found
        assert found["memory_effective_available_bytes"] == 32 * GIB
        assert found["memory_oom_kills_total cgroup"] == 7

    def test_that_was_named_and_is_missing_is_no_failure_but_logged_once(
        self, machine: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        source = collector(machine, HostConfig(cgroup=machine / "cgroup" / "training"))
        with caplog.at_level(logging.WARNING):
            found = [samples(source), samples(source)][-1]

        assert found["memory_effective_total_bytes"] == 64 * GIB
        assert caplog.messages == ["no memory cgroup"]


class TestTheFloor:
    def test_is_a_share_and_at_most_eight_gib(self) -> None:
        assert default_floor(10 * GIB) == int(0.8 * GIB)
        assert default_floor(1000 * GIB) == 8 * GIB

    def test_can_be_set(self, machine: Path) -> None:
        config = HostConfig.model_validate({"memory_available_floor": "2GiB"})

        assert samples(collector(machine, config))["memory_available_floor_bytes"] == 2 * GIB

    def test_shows_its_deficit_only_while_it_lasts(self, machine: Path) -> None:
        def shortfall(floor: int) -> float | None:
            found = samples(collector(machine, HostConfig(memory_available_floor=floor)))
            return found.get("memory_shortfall_bytes")

        assert shortfall(33 * GIB) == GIB
        assert shortfall(32 * GIB + 1) == 1
        assert shortfall(32 * GIB) is None
        assert shortfall(8 * GIB) is None

    def test_that_is_missed_is_the_smaller_one_of_machine_and_cgroup(self, machine: Path) -> None:
        contain(machine)
        found = samples(collector(machine, HostConfig(memory_available_floor=5 * GIB)))

        assert found["memory_shortfall_bytes"] == GIB

    def test_cannot_be_negative(self) -> None:
        with pytest.raises(ValidationError):
            HostConfig.model_validate({"memory_available_floor": -1})


@pytest.mark.parametrize(
    ("cgroup_usage", "total", "available"),
    [
        (None, 64, 32),
        (CgroupUsage(16, 4), 16, 12),
        (CgroupUsage(60, 20), 60, 32),
        (CgroupUsage(100, 90), 64, 10),
        (CgroupUsage(100, 10), 64, 32),
        (CgroupUsage(16, 20), 16, 0),
    ],
)
def test_the_smaller_of_machine_and_cgroup_counts(
    cgroup_usage: CgroupUsage | None, total: int, available: int
) -> None:
    assert effective_memory(64, 32, cgroup_usage) == (total, available)


def test_this_machine_is_seen_as_it_is() -> None:
    found = samples(HostCollector(HostConfig()))

    assert found["host_boot_timestamp_seconds"] == pytest.approx(
        time.time() - time.clock_gettime(time.CLOCK_BOOTTIME), abs=2
    )
    assert found["memory_total_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < found["memory_effective_available_bytes"] <= found["memory_effective_total_bytes"]
    assert 0 < found["host_cpus"] <= (os.cpu_count() or 0)
