"""Heartbeats, as they are scraped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainwarden_exporter.collectors.heartbeats import HeartbeatsCollector, read_modification_time
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.heartbeats.registry import HeartbeatConfig, HeartbeatRegistry
from trainwarden_exporter.scrape.validation import validated

WaitUntil = Callable[[Callable[[], bool]], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "backup.beat"


@pytest.fixture
def collector(path: Path) -> Iterator[HeartbeatsCollector]:
    backup = HeartbeatConfig(name="backup", file=path, interval=300)
    collector = HeartbeatsCollector(HeartbeatRegistry([backup]), interval=0.01)
    yield collector
    HeartbeatsCollector(HeartbeatRegistry()).take_over_from(collector)  # ends its watch


def scrape(collector: HeartbeatsCollector) -> dict[str, float]:
    found = {}
    for family in validated(collector.collect(), collector.metrics):
        for sample in family.samples:
            run, name = sample.labels.values()
            key = sample.name.removeprefix("trainwarden_heartbeat_")
            found[f"{key} {run}/{name}"] = sample.value
    return found


def test_without_any_there_is_no_data() -> None:
    with pytest.raises(NoData):
        scrape(HeartbeatsCollector(HeartbeatRegistry()))


def test_a_missing_heartbeat_is_awaited_and_has_no_time(collector: HeartbeatsCollector) -> None:
    values = scrape(collector)
    assert values["interval_seconds /backup"] == 300
    assert values["beats_total /backup"] == 0
    assert abs(values["awaited_since_timestamp_seconds /backup"] - time.time()) < 60
    assert "timestamp_seconds /backup" not in values


def test_a_touched_file_is_a_beat(
    collector: HeartbeatsCollector, path: Path, wait_until: WaitUntil
) -> None:
    path.touch()
    os.utime(path, (5000, 5000))
    wait_until(lambda: scrape(collector).get("timestamp_seconds /backup") == 5000)
    os.utime(path, (5300, 5300))
    wait_until(lambda: scrape(collector)["timestamp_seconds /backup"] == 5300)
    assert scrape(collector)["beats_total /backup"] == 2


def test_a_file_that_is_gone_leaves_its_last_beat(
    collector: HeartbeatsCollector, path: Path, wait_until: WaitUntil
) -> None:
    path.touch()
    os.utime(path, (5000, 5000))
    wait_until(lambda: "timestamp_seconds /backup" in scrape(collector))
    path.unlink()
    seen = scrape(collector)["seen_timestamp_seconds /backup"]
    wait_until(lambda: scrape(collector)["seen_timestamp_seconds /backup"] > seen)
    assert scrape(collector)["timestamp_seconds /backup"] == 5000


def test_what_is_configured_counts_more_than_what_the_beat_says() -> None:
    heartbeats = HeartbeatRegistry(
        [HeartbeatConfig(name="a", interval=60), HeartbeatConfig(name="b")]
    )
    for name in ("a", "b"):
        heartbeats.record(name, interval=90)
    values = scrape(HeartbeatsCollector(heartbeats))
    assert (values["interval_seconds /a"], values["interval_seconds /b"]) == (60, 90)


def test_it_goes_on_after_a_reload(collector: HeartbeatsCollector) -> None:
    collector.heartbeats.record("backup", step=5)
    successor = HeartbeatsCollector(HeartbeatRegistry([HeartbeatConfig(name="backup")]))
    successor.take_over_from(collector)
    assert scrape(successor)["step /backup"] == 5


def test_a_file_that_cannot_be_seen_is_not_taken_for_missing(path: Path) -> None:
    assert read_modification_time(path) is None
    with pytest.raises(NotADirectoryError):
        read_modification_time(Path("/dev/null/beat"))
