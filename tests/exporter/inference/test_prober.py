"""What a prober does beside asking and judging: it remembers, counts, and tells."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fake_engines import FakeVllm, Reply, Request
from nights import MIDNIGHT, Night, watch
from trainwarden_exporter.inference.reading import Completion
from trainwarden_exporter.inference.verdict import Reason

INTERVAL = 5.0


def test_rounds_come_at_their_interval() -> None:
    async def story(night: Night) -> None:
        await night.pass_time(100.1)
        assert night.sighting.probes == 21
        assert night.sighting.timestamp == MIDNIGHT + 100

    watch(FakeVllm(), story)


def test_since_when_a_server_is_as_it_is() -> None:
    async def story(night: Night) -> None:
        await night.pass_time(62)
        assert night.sighting.reason_timestamp == MIDNIGHT
        night.fake.dead = True
        await night.pass_time(60)
        assert night.sighting.reason_timestamp == MIDNIGHT + 65

    watch(FakeVllm(), story)


def test_failed_rounds_are_counted_by_what_was_found() -> None:
    async def story(night: Night) -> None:
        await night.pass_time(12)
        night.fake.listening = False
        await night.pass_time(10)
        night.fake.listening, night.fake.dead = True, True
        await night.pass_time(5)
        assert night.sighting.failures == {"refused": 2, "dead": 1}
        assert night.sighting.state.failures == 3

    watch(FakeVllm(), story)


def test_the_age_of_the_weights_counts_from_when_they_were_first_seen() -> None:
    async def story(night: Night) -> None:
        await night.pass_time(61)
        assert night.sighting.version_timestamp == MIDNIGHT
        night.fake.version = "1"
        await night.pass_time(60)
        assert night.sighting.reading.weight_version == "1"
        assert night.sighting.version_timestamp == MIDNIGHT + 90
        night.fake.listening = False
        await night.pass_time(6)
        assert night.sighting.reading.weight_version is None
        assert night.sighting.version_timestamp is None

    watch(FakeVllm(), story)


def test_when_work_was_last_seen_to_get_done() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.pass_time(31)
        assert night.sighting.worked_timestamp == MIDNIGHT + 30
        night.fake.paused = True
        await night.pass_time(60)
        assert night.sighting.worked_timestamp == MIDNIGHT + 30

    watch(FakeVllm(), story)


def test_the_last_token_that_was_asked_for_is_shown() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.pass_time(20)
        night.fake.stuck = True
        await night.until(Reason.HUNG, within=90)
        deep = night.sighting.deep
        assert deep is not None
        assert deep.completion is Completion.FAILED
        assert deep.seconds == pytest.approx(20, abs=0.3)

    watch(FakeVllm(), story)


def test_what_is_not_there_is_asked_for_seldom() -> None:
    async def story(night: Night) -> None:
        await night.pass_time(890)
        asked = night.fake.asked.count("GET /is_paused")
        assert asked == 3, "once in five minutes"

    watch(FakeVllm(dev_mode=False), story)


def test_what_is_not_answered_is_not_asked_for_again_at_once() -> None:
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
    told = [(record.levelname, record.__dict__["reason"]) for record in caplog.records]
    assert told == [("WARNING", Reason.REFUSED), ("INFO", Reason.OK)]


class Surprising(FakeVllm):
    """Makes its prober stumble, as only a mistake of ours could."""

    async def answer(self, request: Request) -> Reply:
        if self.scaling:
            raise RuntimeError("surprise")
        return await super().answer(request)


def test_a_mistake_of_ours_does_not_end_the_rounds(caplog: pytest.LogCaptureFixture) -> None:
    async def story(night: Night) -> None:
        fake: Any = night.fake
        await night.until(Reason.OK, within=INTERVAL)
        fake.scaling = True
        await night.pass_time(20)
        fake.scaling = False
        before = night.sighting.probes
        await night.pass_time(20)
        assert night.sighting.probes > before

    watch(Surprising(), story)
    assert "probe failed" in caplog.text
