"""State, counters and logs of a prober."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fake_engines import FakeVllm, Reply, Request
from nights import MIDNIGHT, Night, watch
from trainwarden_exporter.inference.engine_stats import Completion
from trainwarden_exporter.inference.health_model import HealthReason

INTERVAL = 5.0


def test_rounds_start_at_the_interval() -> None:
    async def story(night: Night) -> None:
        await night.pass_time(100.1)
        assert night.health.probes == 21
        assert night.health.timestamp == MIDNIGHT + 100

    watch(FakeVllm(), story)


def test_the_start_of_the_current_reason_is_known() -> None:
    async def story(night: Night) -> None:
        await night.pass_time(62)
        assert night.health.reason_timestamp == MIDNIGHT
        night.fake.dead = True
        await night.pass_time(60)
        assert night.health.reason_timestamp == MIDNIGHT + 65

    watch(FakeVllm(), story)


def test_failed_rounds_in_a_row_are_counted() -> None:
    async def story(night: Night) -> None:
        await night.pass_time(12)
        night.fake.listening = False
        await night.pass_time(10)
        night.fake.listening, night.fake.dead = True, True
        await night.pass_time(5)
        assert night.health.state.failures == 3

    watch(FakeVllm(), story)


def test_the_age_of_the_weights_counts_from_their_first_observation() -> None:
    async def story(night: Night) -> None:
        await night.pass_time(61)
        assert night.health.version_timestamp == MIDNIGHT
        night.fake.version = "1"
        await night.pass_time(60)
        assert night.health.stats.weight_version == "1"
        assert night.health.version_timestamp == MIDNIGHT + 90
        night.fake.listening = False
        await night.pass_time(6)
        assert night.health.stats.weight_version is None
        assert night.health.version_timestamp is None

    watch(FakeVllm(), story)


def test_the_time_of_the_last_observed_work_is_known() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.pass_time(31)
        assert night.health.progress_timestamp == MIDNIGHT + 30
        night.fake.paused = True
        await night.pass_time(60)
        assert night.health.progress_timestamp == MIDNIGHT + 30

    watch(FakeVllm(), story)


def test_the_last_completion_is_shown() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.pass_time(20)
        night.fake.stuck = True
        await night.until(HealthReason.HUNG, within=90)
        deep = night.health.last_completion
        assert deep is not None
        assert deep.outcome is Completion.FAILED
        assert deep.seconds == pytest.approx(20, abs=0.3)

    watch(FakeVllm(), story)


def test_a_missing_endpoint_is_requested_rarely() -> None:
    async def story(night: Night) -> None:
        await night.pass_time(890)
        asked = night.fake.asked.count("GET /is_paused")
        assert asked == 3, "once in five minutes"

    watch(FakeVllm(dev_mode=False), story)


def test_an_unanswered_request_is_not_repeated_at_once() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.pass_time(20)
        night.fake.stuck = True
        before = night.fake.asked.count("GET /is_paused")
        await night.pass_time(300)
        assert night.fake.asked.count("GET /is_paused") - before <= 300 / 20 + 1

    watch(FakeVllm(), story)


def test_a_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story(night: Night) -> None:
        await night.pass_time(60)
        night.fake.listening = False
        await night.pass_time(60)
        night.fake.listening = True
        await night.pass_time(60)

    watch(FakeVllm(), story)
    changes = [(record.levelname, record.__dict__["reason"]) for record in caplog.records]
    assert changes == [("WARNING", HealthReason.REFUSED), ("INFO", HealthReason.OK)]


class Surprising(FakeVllm):
    """Raises an exception in its prober, as only a programming error could."""

    async def answer(self, request: Request) -> Reply:
        if self.scaling:
            raise RuntimeError("surprise")
        return await super().answer(request)


def test_an_unexpected_exception_does_not_end_the_rounds(caplog: pytest.LogCaptureFixture) -> None:
    async def story(night: Night) -> None:
        fake: Any = night.fake
        await night.until(HealthReason.OK, within=INTERVAL)
        fake.scaling = True
        await night.pass_time(20)
        fake.scaling = False
        before = night.health.probes
        await night.pass_time(20)
        assert night.health.probes > before

    watch(Surprising(), story)
    assert "probe failed" in caplog.text
