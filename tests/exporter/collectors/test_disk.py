"""The disks of the runs, each with a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.collectors.disk import DiskCollector, WatchedPath
from trainwarden_exporter.config import Config
from trainwarden_exporter.config_file import loader
from trainwarden_exporter.disk.config import DiskConfig
from trainwarden_exporter.disk.mounts import Mount
from trainwarden_exporter.disk.usage import DiskUsage
from trainwarden_exporter.exceptions import ConfigError, NoData
from trainwarden_exporter.scrape.validation import validated

GIB = 1 << 30
DATA = Mount(7, "/data", "server:/data", "nfs4", read_only=False)
ROOT = Mount(1, "/", "/dev/vda", "ext4", read_only=False)


def space(mount: Mount | None = DATA, **more: Any) -> DiskUsage:
    plain = DiskUsage(100 * GIB, 40 * GIB, 1000, 900, read_only=False, mount=mount)
    return replace(plain, **more)


class Disks:
    """What a look at each path finds; None hangs until the test is over."""

    def __init__(self, **spaces: DiskUsage | OSError | None) -> None:
        self.spaces = {f"/{name.replace('_', '/')}": found for name, found in spaces.items()}
        self.over = threading.Event()
        self.waited_out = False

    def __call__(self, place: WatchedPath) -> DiskUsage:
        found = self.spaces[str(place.path)]
        if found is None:
            self.waited_out = not self.over.wait(60)
            raise OSError("over")
        if isinstance(found, OSError):
            raise OSError(*found.args)  # the same one would grow by a line with each look
        return found


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def disk(path: str, **more: Any) -> DiskConfig:
    return DiskConfig.model_validate({"path": path, **more})


def samples(collector: DiskCollector) -> dict[str, dict[tuple[str, ...], float]]:
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in validated(collector.collect(), collector.metrics):
        for sample in family.samples:
            name = sample.name.removeprefix("trainwarden_disk_")
            found.setdefault(name, {})[tuple(sample.labels.values())] = sample.value
    return found


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


def test_without_disks_there_is_nothing_to_see() -> None:
    with pytest.raises(NoData):
        DiskCollector([]).collect()


def test_a_disk_is_shown_with_all_that_is_known_of_it() -> None:
    found = samples(DiskCollector([disk("/data")], read_usage=Disks(data=space()), now=Clock()))
    key = ("/data",)
    assert {name: values[key] for name, values in found.items() if key in values} == {
        "up": 1,
        "seen_timestamp_seconds": 1000,
        "size_bytes": 100 * GIB,
        "free_bytes": 40 * GIB,
        "free_floor_bytes": 5 * GIB,
        "inodes": 1000,
        "free_inodes": 900,
        "read_only": 0,
    }
    assert found["info"] == {("/data", "/data", "server:/data", "nfs4"): 1}


def test_what_a_disk_does_not_tell_is_absent() -> None:
    bare = space(None, size=None, free=None, inodes=None, free_inodes=None)
    found = samples(DiskCollector([disk("/data")], read_usage=Disks(data=bare)))
    assert set(found) == {"up", "seen_timestamp_seconds", "read_only"}


def test_a_floor_is_as_configured() -> None:
    collector = DiskCollector([disk("/data", free_floor="1GiB")], read_usage=Disks(data=space()))
    assert samples(collector)["free_floor_bytes"] == {("/data",): GIB}


class TestTheDiskOfARun:
    def test_is_shown_by_where_it_is_mounted_and_once_for_all_runs(self) -> None:
        runs = [Path("/data/a"), Path("/data/b"), Path("/home")]
        disks = Disks(data_a=space(), data_b=space(), home=space(ROOT))
        assert set(samples(DiskCollector([], runs, read_usage=disks))["up"]) == {("/data",), ("/",)}

    def test_is_not_shown_beside_a_configured_disk(self) -> None:
        disks = Disks(data_shared=space(), data_a=space(), home=space(ROOT))
        collector = DiskCollector([disk("/data/shared")], [Path("/data/a")], read_usage=disks)
        assert set(samples(collector)["up"]) == {("/data/shared",)}
        # two that are configured are both meant, though they lie on one disk
        collector = DiskCollector([disk("/data/shared"), disk("/data/a")], read_usage=disks)
        assert set(samples(collector)["up"]) == {("/data/shared",), ("/data/a",)}

    def test_is_that_on_which_an_announced_run_works(self) -> None:
        """A folder of an image that is mounted read-only is always full, and no saves go there."""
        image = space(replace(ROOT, id=9, point="/image"), free=0, read_only=True)
        disks = Disks(data_log=space(), home=space(ROOT), image=image, gone=OSError(13, "denied"))
        works = [Path(one) for one in ("/data/log", "/home", "/image", "/gone")]
        found = samples(DiskCollector([], [], works, read_usage=disks))
        assert set(found["up"]) == set(found["free_bytes"]) == {("/data",), ("/",)}

    def test_is_shown_by_the_path_of_the_run_while_it_cannot_be_seen(self) -> None:
        collector = DiskCollector(
            [], [Path("/data/a")], read_usage=Disks(data_a=OSError(13, "denied"))
        )
        assert samples(collector) == {"up": {("/data/a",): 0}}


def test_a_disk_has_the_same_name_for_every_caller() -> None:
    disks = Disks(data_shared=space(), data_a=space(), home=space(ROOT))
    collector = DiskCollector(
        [disk("/data/shared")], [Path("/data/a"), Path("/home")], read_usage=disks
    )
    shown = samples(collector)["up"]
    assert {(collector.label(DATA),), (collector.label(ROOT),)} == set(shown)


class TestADiskThatFails:
    def test_is_down_and_nothing_old_is_shown(self) -> None:
        disks, clock = Disks(data=space()), Clock()
        collector = DiskCollector([disk("/data")], read_usage=disks, now=clock)
        assert samples(collector)["up"] == {("/data",): 1}
        disks.spaces["/data"] = OSError(5, "gone")
        _look_again(collector)
        eventually(lambda: samples(collector)["up"] == {("/data",): 0})
        assert set(samples(collector)) == {"up", "seen_timestamp_seconds"}

    def test_hangs_alone(self) -> None:
        disks = Disks(dead=None, data=space())
        collector = DiskCollector([disk("/dead"), disk("/data")], read_usage=disks, now=Clock())
        assert samples(collector)["up"] == {("/dead",): 0, ("/data",): 1}
        for _ in range(50):
            samples(collector)
        assert not disks.waited_out
        disks.over.set()

    def test_that_hangs_later_is_down_after_half_a_minute(self) -> None:
        disks, clock = Disks(data=space()), Clock()
        collector = DiskCollector([disk("/data")], read_usage=disks, now=clock)
        assert samples(collector)["up"] == {("/data",): 1}
        disks.spaces["/data"] = None
        clock.now += 30
        assert samples(collector)["up"] == {("/data",): 1}
        clock.now += 6
        found = samples(collector)
        assert found["up"] == {("/data",): 0}
        assert found["seen_timestamp_seconds"] == {("/data",): 1000}
        assert "free_bytes" not in found
        disks.over.set()


def test_a_disk_is_probed_only_where_that_is_wished(tmp_path: Path) -> None:
    probed, plain = tmp_path / "probed", tmp_path / "plain"
    probed.mkdir()
    plain.mkdir()
    wish = {"interval": "1h", "size": "1MiB", "speed_floor": "50MB"}
    collector = DiskCollector([disk(str(probed), probe=wish), disk(str(plain))], [tmp_path])
    eventually(lambda: "probe_success" in samples(collector))
    found = samples(collector)
    key = (str(probed),)
    assert found["probe_success"] == {key: 1}
    assert found["probe_failures_total"] == {key: 0}
    assert found["probe_floor_bytes_per_second"] == {key: 50_000_000}
    assert found["probe_latency_seconds"][key] > 0
    assert found["probe_bytes_per_second"][key] > 0
    assert found["probe_timestamp_seconds"][key] == pytest.approx(time.time(), abs=60)


def test_a_reload_goes_on_with_the_looks_and_counts_of_before(tmp_path: Path) -> None:
    missing = disk(str(tmp_path / "missing"), probe={"interval": "1h", "size": "1MiB"})
    before, after = DiskCollector([missing]), DiskCollector([missing, disk(str(tmp_path))])
    eventually(lambda: samples(before).get("probe_failures_total") is not None)
    after.take_over_from(before)
    found = samples(after)
    assert found["probe_failures_total"] == {(str(missing.path),): 1}
    assert found["up"] == {(str(missing.path),): 0, (str(tmp_path),): 1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "disks: [{path: /a}, {path: /a}]",
            ":1: disks[1].path: another disk has the path /a",
        ),
        ("disks: [{path: /a, probe: {size: 2GiB}}]", ":1: disks[0].probe.size: "),
        ("disks: [{path: /a, probe: {interval: 0}}]", ":1: disks[0].probe.interval: "),
    ],
)
def test_a_mistake_is_shown_where_it_stands(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loader.parse(text, Path("exporter.yml"), Config)
    assert f"exporter.yml{problem}" in str(caught.value)


def _look_again(collector: DiskCollector) -> None:
    """Have the watches look now, and not after their interval."""
    for _, poller in collector._usage_pollers:
        poller._closing.set()
        if poller._thread is not None:
            poller._thread.join(5)
        poller._closing.clear()
        poller._thread = None
        poller.start()
