"""TGI, llama.cpp, Triton, the routers and any other server through their states."""

from __future__ import annotations

from typing import Any

import pytest

from fake_engines import (
    FakeEngine,
    FakeGeneric,
    FakeLlamaCpp,
    FakeRouter,
    FakeSglangRouter,
    FakeTgi,
    FakeTriton,
    FakeVllm,
    FakeVllmRouter,
)
from nights import Night, watch
from trainwarden_exporter.inference.reading import Completion
from trainwarden_exporter.inference.verdict import Reason

INTERVAL = 5.0
TEN_MINUTES = 600.0


@pytest.mark.parametrize("fake", [FakeTgi(), FakeLlamaCpp(), FakeTriton()], ids=lambda f: f.name)
def test_a_server_that_serves_is_ok_and_says_what_it_does(fake: FakeEngine) -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 10
        await night.until(Reason.OK, within=INTERVAL)
        assert await night.pass_time(120) == {Reason.OK}
        assert night.sighting.reading.waiting == 2
        assert night.sighting.reading.models == ("tiny",)
        assert night.completions <= 1

    watch(fake, story)


@pytest.mark.parametrize("fake", [FakeTgi(), FakeLlamaCpp()], ids=lambda f: f.name)
def test_a_hang_in_the_middle_of_requests_is_found(fake: FakeEngine) -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        await night.pass_time(60)
        night.fake.stuck = True
        await night.until(Reason.HUNG, within=90)
        night.fake.stuck = night.fake.was_busy = False
        await night.until(Reason.OK, within=90)

    watch(fake, story)


@pytest.mark.parametrize(
    "fake", [FakeTgi(), FakeLlamaCpp(), FakeLlamaCpp(metrics=False)], ids=lambda f: f.name
)
def test_a_hang_from_idle_is_found(fake: FakeEngine) -> None:
    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        assert await night.pass_time(TEN_MINUTES) == {Reason.OK}
        night.fake.stuck = True
        await night.until(Reason.HUNG, within=120)

    watch(fake, story)


@pytest.mark.parametrize(
    "fake",
    [FakeTgi(), FakeLlamaCpp(), FakeTriton(), FakeSglangRouter(FakeVllm())],
    ids=lambda f: f.name,
)
def test_a_killed_server_is_refused_and_a_frozen_one_a_timeout(fake: FakeEngine) -> None:
    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.frozen = True
        await night.until(Reason.TIMEOUT, within=55)
        night.fake.frozen = False
        await night.until(Reason.OK, within=20)
        night.fake.listening = False
        await night.until(Reason.REFUSED, within=INTERVAL + 1)

    watch(fake, story)


def test_tgi_that_says_unhealthy_three_times_is_at_fault() -> None:
    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.dead = True
        assert await night.pass_time(2 * INTERVAL - 1) == {Reason.OK}
        await night.until(Reason.STATUS, within=2 * INTERVAL)
        assert night.sighting.status == 503

    watch(FakeTgi(), story)


def test_an_overloaded_tgi_is_ok() -> None:
    async def story(night: Night) -> None:
        night.fake.clients, night.fake.overloaded = 200, True
        await night.pass_time(30)
        assert await night.pass_time(TEN_MINUTES) == {Reason.OK}

    watch(FakeTgi(), story)


def test_llama_cpp_that_loads_is_starting_for_as_long_as_it_says_so() -> None:
    async def story(night: Night) -> None:
        night.fake.ready = False
        await night.pass_time(1)
        assert await night.pass_time(1200) == {Reason.STARTING}
        night.fake.ready = True
        await night.until(Reason.OK, within=INTERVAL + 1)

    watch(FakeLlamaCpp(), story, start_grace=60)


def test_llama_cpp_without_the_key_shows_no_more_than_its_health() -> None:
    async def story(night: Night) -> None:
        night.fake.key = "secret"
        await night.pass_time(30)
        assert night.reason is Reason.OK
        assert night.sighting.reading.running is None
        assert night.sighting.reading.models is None
        assert night.sighting.deep is None

    watch(FakeLlamaCpp(), story)


def test_llama_cpp_with_the_key_shows_all() -> None:
    async def story(night: Night) -> None:
        night.fake.key = "secret"
        await night.pass_time(30)
        assert night.sighting.reading.running == 0
        assert night.sighting.deep is not None
        assert night.sighting.deep.completion is Completion.DONE

    watch(FakeLlamaCpp(), story, key="secret")


def test_triton_that_is_not_ready_starts_and_is_at_fault_once_it_was_ready() -> None:
    async def story(night: Night) -> None:
        night.fake.ready = False
        night.start_process()
        await night.pass_time(1)
        assert await night.pass_time(120) == {Reason.STARTING}
        night.fake.ready = True
        await night.until(Reason.OK, within=INTERVAL + 1)
        night.fake.ready = False
        await night.until(Reason.STATUS, within=3 * INTERVAL + 1)
        assert night.completions == 0, "what to ask of it depends on the model"

    watch(FakeTriton(), story)


@pytest.mark.parametrize("router", [FakeSglangRouter, FakeVllmRouter])
def test_a_router_is_at_fault_without_a_healthy_server(router: type[FakeRouter]) -> None:
    backend = FakeVllm()

    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        await night.pass_time(INTERVAL)
        assert night.sighting.reading.backends == 1
        assert night.sighting.reading.healthy_backends == 1
        backend.dead = True
        await night.until(Reason.STATUS, within=3 * INTERVAL + 1)

    watch(router(backend), story)


@pytest.mark.parametrize("router", [FakeSglangRouter, FakeVllmRouter])
def test_a_router_calls_a_hung_server_ready_which_is_why_that_is_watched_itself(
    router: type[FakeRouter],
) -> None:
    backend = FakeVllm()

    async def story(night: Night) -> None:
        backend.clients, backend.stuck = 3, True
        await night.until(Reason.OK, within=INTERVAL)
        assert await night.pass_time(300) == {Reason.OK}
        assert night.completions == 0

    watch(router(backend), story)


def test_a_router_that_may_be_asked_for_a_token_shows_the_hang_behind_it() -> None:
    backend = FakeVllm()

    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        backend.clients, backend.stuck = 3, True
        await night.until(Reason.HUNG, within=120)

    watch(FakeSglangRouter(backend), story, model="tiny", deep_probe={"enabled": True})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"json_field": "state/engine", "json_value": "ok"}, Reason.OK),
        ({"json_field": "state/engine", "json_value": "good"}, Reason.STATUS),
        ({"json_field": "state/engine"}, Reason.OK),
        ({"json_field": "state/motor"}, Reason.STATUS),
        ({"json_field": "uptime", "json_value": 12}, Reason.OK),
        ({"json_field": "uptime", "json_value": True}, Reason.STATUS),
        ({"status": 200}, Reason.OK),
        ({"status": 204}, Reason.STATUS),
        ({"url": "http://server/other", "status": 404}, Reason.OK),
        ({"url": "http://server/other"}, Reason.STATUS),
    ],
)
def test_any_other_server_is_judged_by_status_or_by_a_field(
    settings: dict[str, Any], reason: Reason
) -> None:
    async def story(night: Night) -> None:
        await night.until(reason, within=3 * INTERVAL)
        assert night.sighting.reading.models is None

    watch(FakeGeneric(), story, **{"url": "http://server/status", **settings})


def test_any_other_server_that_wants_a_key_is_up_and_says_so() -> None:
    async def story(night: Night) -> None:
        night.fake.key = "secret"
        await night.until(Reason.UNAUTHORIZED, within=INTERVAL)
        assert night.sighting.up is True

    watch(FakeGeneric(), story, url="http://server/status")
