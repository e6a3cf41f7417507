"""Meanings of XIDs, and the watcher that counts them in its own thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from trainwarden_exporter.collectors.xid import XidCollector
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.gpu import xid_watcher
from trainwarden_exporter.gpu.model import GpuKey
from trainwarden_exporter.gpu.nvml_calls import DriverFailedError, GpuLostError, NvmlError
from trainwarden_exporter.gpu.xid import _CATALOGUE, XIDS, XidCount, XidCounts, describe
from trainwarden_exporter.gpu.xid_watcher import RETRY_SECONDS, USER_TTL_SECONDS, XidWatcher
from trainwarden_exporter.scrape.validation import validated

ONE, TWO = GpuKey("0", "GPU-a"), GpuKey("1", "GPU-b")
Wait = Callable[[Callable[[], bool]], None]


@pytest.mark.parametrize(
    ("severity", "codes"),
    [
        ("fatal", (46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158)),
        ("warning", (8, 39, 61, 94, 121, 135, 144, 150, 157)),
        ("application", (11, 13, 25, 31, 32, 43, 69, 80, 137)),
        ("info", (37, 45, 63, 66, 92, 106, 141, 154)),
        ("unknown", (0, 1, 14, 49, 138, 999)),
    ],
)
def test_a_code_has_the_severity_of_its_recommended_action(
    severity: str, codes: Sequence[int]
) -> None:
    assert {code: describe(code).severity for code in codes} == dict.fromkeys(codes, severity)


def test_a_code_has_a_meaning_for_an_operator() -> None:
    assert describe(79).meaning == "GPU has fallen off the bus"
    assert all(xid.meaning for xid in XIDS.values())


def test_the_catalogue_lists_no_code_twice() -> None:
    assert len(XIDS) == sum(len(list(codes)) for _, _, codes in _CATALOGUE)


def test_counts_are_kept_by_gpu_and_code() -> None:
    counts = XidCounts()
    counts.add(TWO, 79, 5)
    counts.add(ONE, 31, 6)
    counts.add(TWO, 79, 7)
    assert counts.all() == (XidCount(ONE, 31, 1, 6), XidCount(TWO, 79, 2, 7))


class Source:
    """Events of a driver: the subscription returns queued events and raises queued errors."""

    def __init__(self) -> None:
        self.events: SimpleQueue[tuple[GpuKey, int] | BaseException] = SimpleQueue()
        self.subscribed: list[tuple[GpuKey, ...]] = []
        self.refusal: Exception | None = None
        self.lost: Collection[GpuKey] = ()
        self.closed = 0

    def __call__(self, gpus: Mapping[GpuKey, Any]) -> Source:
        self.subscribed.append(tuple(gpus))
        if self.refusal is not None:
            raise self.refusal
        return self

    def wait(self, seconds: float) -> tuple[GpuKey, int] | None:
        try:
            event = self.events.get(timeout=seconds)
        except Empty:
            return None
        if isinstance(event, BaseException):
            raise event
        return event

    def close(self) -> None:
        self.closed += 1


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xid_watcher, "WAIT_SECONDS", 0.005)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(source: Source, clock: Clock, wait_until: Wait) -> Iterator[XidWatcher]:
    watch = XidWatcher(source, now=lambda: 7.0, clock=clock)
    yield watch
    watch.stop()
    wait_until(lambda: watch.released)


class TestXidWatcher:
    def test_counts_xids_between_scrapes(
        self, watch: XidWatcher, source: Source, wait_until: Wait
    ) -> None:
        watch.watch({ONE: "handle"})
        for code in (31, 79, 31):
            source.events.put((ONE, code))
        wait_until(lambda: len(watch.counts.all()) == 2 and source.events.empty())

        assert watch.counts.all() == (XidCount(ONE, 31, 2, 7.0), XidCount(ONE, 79, 1, 7.0))
        assert watch.watching
        assert watch.last_timestamp == 7.0

    def test_logs_each_xid(
        self, watch: XidWatcher, source: Source, wait_until: Wait, caplog: pytest.LogCaptureFixture
    ) -> None:
        watch.watch({ONE: "handle"})
        source.events.put((ONE, 79))
        wait_until(lambda: bool(caplog.records))
        (record,) = caplog.records
        assert (record.message, record.levelname) == ("XID", "WARNING")
        assert vars(record)["severity"] == "fatal"
        assert vars(record)["gpu"] == "0"

    def test_is_one_thread_however_often_watch_is_called(
        self, watch: XidWatcher, source: Source, wait_until: Wait
    ) -> None:
        before = threading.active_count()
        for _ in range(20):
            watch.watch({ONE: "handle"})
        wait_until(lambda: source.subscribed == [(ONE,)])
        assert threading.active_count() == before + 1

    def test_watches_a_gpu_that_comes_later(
        self, watch: XidWatcher, source: Source, wait_until: Wait
    ) -> None:
        watch.watch({ONE: "handle"})
        wait_until(lambda: len(source.subscribed) == 1)
        watch.watch({ONE: "handle", TWO: "other"})
        wait_until(lambda: source.subscribed[1:] == [(ONE, TWO)])
        assert source.closed == 1

    def test_continues_for_the_others_when_one_is_lost(
        self, watch: XidWatcher, source: Source, wait_until: Wait
    ) -> None:
        watch.watch({ONE: "handle", TWO: "other"})
        source.lost = [ONE]
        source.events.put(GpuLostError("GPU is lost"))
        source.events.put((TWO, 31))
        wait_until(lambda: len(watch.counts.all()) == 1)
        watch.watch({TWO: "other"})
        assert source.subscribed == [(ONE, TWO)] * 2

        source.lost = []
        watch.watch({ONE: "handle", TWO: "other"})  # it is back
        wait_until(lambda: len(source.subscribed) == 3)

    def test_releases_the_driver_on_request(
        self, watch: XidWatcher, source: Source, wait_until: Wait
    ) -> None:
        watch.watch({ONE: "handle"})
        wait_until(lambda: len(source.subscribed) == 1)
        watch.stop()
        assert not watch.watching
        wait_until(lambda: watch.released)
        assert source.closed == 1
        watch.watch({ONE: "new handle"})
        wait_until(lambda: len(source.subscribed) == 2)

    def test_does_not_wait_for_a_driver_that_hangs(self, clock: Clock, wait_until: Wait) -> None:
        release = threading.Event()

        class Hanging(Source):
            def wait(self, seconds: float) -> None:
                release.wait(60 * seconds + 30)

        watch = XidWatcher(Hanging(), clock=clock)
        watch.watch({ONE: "handle"})
        watch.watch({ONE: "handle", TWO: "other"})
        watch.stop()
        assert not watch.released
        assert not watch.watching
        release.set()
        wait_until(lambda: watch.released)

    def test_that_fails_is_reported_once_and_tried_again_after_a_pause(
        self,
        watch: XidWatcher,
        source: Source,
        clock: Clock,
        wait_until: Wait,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        source.refusal = NvmlError("not supported")
        for attempt in (1, 2):
            watch.watch({ONE: "handle"})
            wait_until(lambda: watch.released)
            assert not watch.watching
            watch.watch({ONE: "handle"})
            assert len(source.subscribed) == attempt, "not at every scrape"
            clock.now += RETRY_SECONDS
        assert [record.message for record in caplog.records] == ["XIDs not watched"]

        source.refusal = None
        watch.watch({ONE: "handle"})
        wait_until(lambda: len(source.subscribed) == 3)
        assert watch.watching

    def test_restarts_without_a_pause_after_the_driver_was_reloaded(
        self, watch: XidWatcher, source: Source, wait_until: Wait
    ) -> None:
        watch.watch({ONE: "handle"})
        source.events.put(DriverFailedError("Uninitialized"))
        wait_until(lambda: watch.released)
        watch.stop()  # called when the driver has failed
        watch.watch({ONE: "new handle"})
        wait_until(lambda: len(source.subscribed) == 2)

    def test_logs_an_unexpected_error_with_its_traceback(
        self, watch: XidWatcher, source: Source, wait_until: Wait, caplog: pytest.LogCaptureFixture
    ) -> None:
        source.refusal = ZeroDivisionError()
        watch.watch({ONE: "handle"})
        wait_until(lambda: watch.released)
        assert caplog.records[0].exc_info
        assert caplog.records[0].levelno == logging.WARNING

    def test_without_gpus_has_no_events(self, watch: XidWatcher, source: Source) -> None:
        watch.watch({})
        assert not watch.has_gpus
        assert source.subscribed == []


def shown(collector: XidCollector) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        family.name.removeprefix("trainwarden_gpu_xid_"): {
            tuple(sample.labels.values()): sample.value for sample in family.samples
        }
        for family in validated(collector.collect(), collector.metrics)
    }


class TestTheCollector:
    def test_has_no_data_where_there_is_no_gpu(self, watch: XidWatcher) -> None:
        with pytest.raises(NoData):
            XidCollector(watch).collect()

    def test_shows_counts_and_last_times(
        self, watch: XidWatcher, source: Source, wait_until: Wait
    ) -> None:
        watch.watch({ONE: "handle"})
        source.events.put((ONE, 79))
        wait_until(lambda: bool(watch.counts.all()))
        labels = ("0", "GPU-a", "79", "fatal")
        assert shown(XidCollector(watch)) == {
            "errors": {labels: 1},
            "last_timestamp_seconds": {labels: 7.0},
            "trainwarden_worker_gpu_xid_timestamp_seconds": {},
            "watching": {(): 1},
            "watch_timestamp_seconds": {(): 7.0},
        }

    def test_names_the_workers_that_had_memory_on_the_gpu(
        self, watch: XidWatcher, source: Source, wait_until: Wait, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = [100.0]
        monkeypatch.setattr(watch, "_clock", lambda: clock[0])
        trainer, server = ("demo", "trainer", "trainer"), ("demo", "server", "inference")
        watch.watch({ONE: "handle", TWO: "handle"})
        watch.update_users([(ONE, trainer), (ONE, server), (TWO, trainer)])
        source.events.put((TWO, 79))
        wait_until(lambda: bool(watch.counts.all()))

        def named() -> dict[tuple[str, ...], float]:
            (family,) = (
                one for one in XidCollector(watch).collect() if one.name.startswith("trainwarden_w")
            )
            return {tuple(s.labels.values()): s.value for s in family.samples}

        assert named() == {(*trainer, "fatal"): 7.0}
        clock[0] += USER_TTL_SECONDS - 1
        watch.update_users([(TWO, server)])
        assert named() == {(*trainer, "fatal"): 7.0, (*server, "fatal"): 7.0}
        clock[0] += 1.1
        assert named() == {(*server, "fatal"): 7.0}

    def test_keeps_its_counts_over_a_reload(
        self, watch: XidWatcher, source: Source, wait_until: Wait
    ) -> None:
        watch.watch({ONE: "handle"})
        source.events.put((ONE, 79))
        wait_until(lambda: bool(watch.counts.all()))
        successor = XidCollector(XidWatcher(Source()))
        successor.take_over_from(XidCollector(watch))
        assert shown(successor)["errors"] == {("0", "GPU-a", "79", "fatal"): 1}
