"""TGI, llama.cpp, Triton, the routers and generic servers through their states."""

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
from trainwarden_exporter.inference.engine_stats import Completion
from trainwarden_exporter.inference.health_model import HealthReason

INTERVAL = 5.0
TEN_MINUTES = 600.0


@pytest.mark.parametrize("fake", [FakeTgi(), FakeLlamaCpp(), FakeTriton()], ids=lambda f: f.name)
def test_a_server_that_serves_is_ok_and_has_statistics(fake: FakeEngine) -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 10
        await night.until(HealthReason.OK, within=INTERVAL)
        assert await night.pass_time(120) == {HealthReason.OK}
        assert night.health.stats.waiting == 2
        assert night.health.stats.models == ("tiny",)
        assert night.completions <= 1

    watch(fake, story)


@pytest.mark.parametrize("fake", [FakeTgi(), FakeLlamaCpp()], ids=lambda f: f.name)
def test_a_hang_in_the_middle_of_requests_is_found(fake: FakeEngine) -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        await night.pass_time(60)
        night.fake.stuck = True
        await night.until(HealthReason.HUNG, within=90)
        night.fake.stuck = night.fake.was_busy = False
        await night.until(HealthReason.OK, within=90)

    watch(fake, story)


@pytest.mark.parametrize(
    "fake", [FakeTgi(), FakeLlamaCpp(), FakeLlamaCpp(metrics=False)], ids=lambda f: f.name
)
def test_a_hang_while_idle_is_found(fake: FakeEngine) -> None:
    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.OK}
        night.fake.stuck = True
        await night.until(HealthReason.HUNG, within=120)

    watch(fake, story)


@pytest.mark.parametrize(
    "fake",
    [FakeTgi(), FakeLlamaCpp(), FakeTriton(), FakeSglangRouter(FakeVllm())],
    ids=lambda f: f.name,
)
def test_a_killed_server_is_refused_and_a_frozen_one_a_timeout(fake: FakeEngine) -> None:
    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.frozen = True
        await night.until(HealthReason.TIMEOUT, within=55)
        night.fake.frozen = False
        await night.until(HealthReason.OK, within=20)
        night.fake.listening = False
        await night.until(HealthReason.REFUSED, within=INTERVAL + 1)

    watch(fake, story)


def test_tgi_that_reports_unhealthy_three_times_is_down() -> None:
    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.dead = True
        assert await night.pass_time(2 * INTERVAL - 1) == {HealthReason.OK}
        await night.until(HealthReason.STATUS, within=2 * INTERVAL)
        assert night.health.status == 503

    watch(FakeTgi(), story)


def test_an_overloaded_tgi_is_ok() -> None:
    async def story(night: Night) -> None:
        night.fake.clients, night.fake.overloaded = 200, True
        await night.pass_time(30)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.OK}

    watch(FakeTgi(), story)


def test_llama_cpp_is_starting_as_long_as_it_reports_loading() -> None:
    async def story(night: Night) -> None:
        night.fake.ready = False
        await night.pass_time(1)
        assert await night.pass_time(1200) == {HealthReason.STARTING}
        night.fake.ready = True
        await night.until(HealthReason.OK, within=INTERVAL + 1)

    watch(FakeLlamaCpp(), story, start_grace=60)


def test_llama_cpp_without_the_key_shows_only_its_health() -> None:
    async def story(night: Night) -> None:
        night.fake.key = "secret"
        await night.pass_time(30)
        assert night.reason is HealthReason.OK
        assert night.health.stats.running is None
        assert night.health.stats.models is None
        assert night.health.last_completion is None

    watch(FakeLlamaCpp(), story)


def test_llama_cpp_with_the_key_shows_all() -> None:
    async def story(night: Night) -> None:
        night.fake.key = "secret"
        await night.pass_time(30)
        assert night.health.stats.running == 0
        assert night.health.last_completion is not None
        assert night.health.last_completion.outcome is Completion.DONE

    watch(FakeLlamaCpp(), story, key="secret")


def test_triton_that_is_not_ready_is_starting_before_it_was_ready_and_down_after() -> None:
    async def story(night: Night) -> None:
        night.fake.ready = False
        night.start_process()
        await night.pass_time(1)
        assert await night.pass_time(120) == {HealthReason.STARTING}
        night.fake.ready = True
        await night.until(HealthReason.OK, within=INTERVAL + 1)
        night.fake.ready = False
        await night.until(HealthReason.STATUS, within=3 * INTERVAL + 1)
        assert night.completions == 0, "what to ask of it depends on the model"

    watch(FakeTriton(), story)


@pytest.mark.parametrize("router", [FakeSglangRouter, FakeVllmRouter])
def test_a_router_without_a_healthy_server_is_down(router: type[FakeRouter]) -> None:
    backend = FakeVllm()

    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        await night.pass_time(INTERVAL)
        assert night.health.stats.backends == 1
        assert night.health.stats.healthy_backends == 1
        backend.dead = True
        await night.until(HealthReason.STATUS, within=3 * INTERVAL + 1)

    watch(router(backend), story)


@pytest.mark.parametrize("router", [FakeSglangRouter, FakeVllmRouter])
def test_a_router_considers_a_hung_server_ready(
    router: type[FakeRouter],
) -> None:
    backend = FakeVllm()

    async def story(night: Night) -> None:
        backend.clients, backend.stuck = 3, True
        await night.until(HealthReason.OK, within=INTERVAL)
        assert await night.pass_time(300) == {HealthReason.OK}
        assert night.completions == 0

    watch(router(backend), story)


def test_a_router_with_completions_shows_a_hang_behind_it() -> None:
    backend = FakeVllm()

    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        backend.clients, backend.stuck = 3, True
        await night.until(HealthReason.HUNG, within=120)

    watch(FakeSglangRouter(backend), story, model="tiny", deep_probe={"enabled": True})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"json_field": "state/engine", "json_value": "ok"}, HealthReason.OK),
        ({"json_field": "state/engine", "json_value": "good"}, HealthReason.STATUS),
        ({"json_field": "state/engine"}, HealthReason.OK),
        ({"json_field": "state/motor"}, HealthReason.STATUS),
        ({"json_field": "uptime", "json_value": 12}, HealthReason.OK),
        ({"json_field": "uptime", "json_value": True}, HealthReason.STATUS),
        ({"status": 200}, HealthReason.OK),
        ({"status": 204}, HealthReason.STATUS),
        ({"url": "http://server/other", "status": 404}, HealthReason.OK),
        ({"url": "http://server/other"}, HealthReason.STATUS),
    ],
)
def test_a_generic_server_is_judged_by_its_status_or_a_field(
    settings: dict[str, Any], reason: HealthReason
) -> None:
    async def story(night: Night) -> None:
        await night.until(reason, within=3 * INTERVAL)
        assert night.health.stats.models is None

    watch(FakeGeneric(), story, **{"url": "http://server/status", **settings})


def test_a_generic_server_that_needs_a_key_is_up_and_unauthorized() -> None:
    async def story(night: Night) -> None:
        night.fake.key = "secret"
        await night.until(HealthReason.UNAUTHORIZED, within=INTERVAL)
        assert night.health.up is True

    watch(FakeGeneric(), story, url="http://server/status")
