"""SGLang through all its states: above all, a pause does not count as down."""

from __future__ import annotations

import asyncio

import pytest

from fake_engines import FakeSglang, Request
from nights import Night, watch
from trainwarden_exporter.inference.engine_stats import Completion
from trainwarden_exporter.inference.health_model import HealthReason

INTERVAL = 5.0
TEN_MINUTES = 600.0
SERVERS = [
    pytest.param({}, id="with metrics"),
    pytest.param({"metrics": False}, id="without metrics"),
]


def sglang(night: Night) -> FakeSglang:
    assert isinstance(night.fake, FakeSglang)
    return night.fake


async def somebody_asks_health(night: Night) -> None:
    """As a router does: in a pause of 20 s it marks the server as unhealthy."""
    await night.fake.respond(Request("GET", "/health"))


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_serves_is_ok(kind: dict[str, bool]) -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 10
        await night.until(HealthReason.OK, within=INTERVAL)
        assert await night.pass_time(120) == {HealthReason.OK}
        reading = night.health.stats
        assert reading.running == 8
        assert reading.models == ("tiny",)
        assert reading.weight_version == "0"
        assert night.completions == 1

    watch(FakeSglang(**kind), story)


@pytest.mark.parametrize("kind", SERVERS)
def test_no_token_is_requested_from_an_idle_server_whose_schedulers_report(
    kind: dict[str, bool],
) -> None:
    async def story(night: Night) -> None:
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.OK}
        assert night.completions == 1

    watch(FakeSglang(**kind), story)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("kind", SERVERS)
def test_a_pause_of_ten_minutes_is_a_pause(kind: dict[str, bool], in_place: bool) -> None:
    async def story(night: Night) -> None:
        sglang(night).in_place = in_place
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        await night.pass_time(60)
        before = night.completions
        night.fake.paused = True
        await night.until(HealthReason.PAUSED, within=2 * INTERVAL + 1)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.PAUSED}
        assert night.health.up is True
        assert night.health.status == 503
        assert night.completions == before
        night.fake.paused = False
        await night.until(HealthReason.OK, within=INTERVAL + 1)
        assert await night.pass_time(120) == {HealthReason.OK}

    watch(FakeSglang(**kind), story)


def test_a_pause_with_a_health_request_is_still_a_pause() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.paused = True
        await night.until(HealthReason.PAUSED, within=2 * INTERVAL + 1)
        await somebody_asks_health(night)
        assert sglang(night).unhealthy
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.PAUSED}

    watch(FakeSglang(), story)


def test_so_is_a_server_that_loads_weights_meanwhile() -> None:
    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.paused = True
        await night.until(HealthReason.PAUSED, within=2 * INTERVAL + 1)
        await somebody_asks_health(night)
        night.fake.updating = True  # the schedulers do not answer while they load
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.PAUSED}

    watch(FakeSglang(metrics=False), story)


def test_the_loop_identifies_a_pause_first_seen_when_the_server_reports_unhealthy() -> None:
    async def story(night: Night) -> None:
        night.fake.paused = sglang(night).unhealthy = True
        night.start_process()
        await night.pass_time(1)
        assert await night.pass_time(60) == {HealthReason.PAUSED}

    watch(FakeSglang(), story, start_grace=0)


def test_probes_never_make_a_server_unhealthy() -> None:
    async def story(night: Night) -> None:
        for state in ("paused", "updating", "stuck"):
            setattr(night.fake, state, True)
            await night.pass_time(300)
            setattr(night.fake, state, False)
            await night.pass_time(60)
        assert not sglang(night).unhealthy
        assert not [asked for asked in night.fake.asked if "/health" in asked]
        assert {asked for asked in night.fake.asked if not asked.startswith("GET")} == {
            "POST /generate"
        }

    watch(FakeSglang(), story)


def test_an_unpaused_weight_update_of_ten_minutes_is_no_hang() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        before = night.completions
        night.fake.updating = True
        await night.until(HealthReason.UPDATING_WEIGHTS, within=INTERVAL + 1)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.UPDATING_WEIGHTS}
        assert night.completions == before
        night.fake.updating = False
        await night.until(HealthReason.OK, within=INTERVAL + 1)

    watch(FakeSglang(), story)


def test_without_metrics_a_weight_update_is_known_from_the_log() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        await night.pass_time(30)
        night.fake.updating = True
        night.logged_update = asyncio.get_running_loop().time()
        await night.until(HealthReason.UPDATING_WEIGHTS, within=INTERVAL + 1)
        assert await night.pass_time(500) == {HealthReason.UPDATING_WEIGHTS}

    watch(FakeSglang(metrics=False), story)


def test_a_server_that_warms_up_is_starting() -> None:
    async def story(night: Night) -> None:
        night.fake.ready = False
        night.start_process()
        await night.pass_time(1)
        assert await night.pass_time(300) == {HealthReason.STARTING}
        night.fake.ready = True
        await night.until(HealthReason.OK, within=INTERVAL + 1)

    watch(FakeSglang(), story)


def test_a_server_that_warms_up_with_an_unknown_process_is_starting() -> None:
    async def story(night: Night) -> None:
        night.fake.listening = night.fake.ready = False
        await night.until(HealthReason.STARTING, within=INTERVAL)
        night.fake.listening = True
        assert await night.pass_time(120) == {HealthReason.STARTING}
        night.fake.ready = True
        await night.until(HealthReason.OK, within=INTERVAL + 1)
        night.fake.listening = night.fake.ready = False
        await night.until(HealthReason.REFUSED, within=INTERVAL + 1)
        night.fake.listening = True
        await night.until(HealthReason.STARTING, within=INTERVAL + 1)
        assert await night.pass_time(120) == {HealthReason.STARTING}

    watch(FakeSglang(), story)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_hang_in_the_middle_of_requests_is_found(kind: dict[str, bool]) -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        await night.pass_time(60)
        night.fake.stuck = True
        await night.until(HealthReason.HUNG, within=90)
        assert night.health.status == 200
        night.fake.stuck = False
        await night.until(HealthReason.OK, within=90)

    watch(FakeSglang(**kind), story)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_hang_while_idle_is_found(kind: dict[str, bool]) -> None:
    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.OK}
        night.fake.stuck = True
        await night.until(HealthReason.HUNG, within=120)

    watch(FakeSglang(**kind), story)


def test_a_server_that_reports_unhealthy_and_hangs_is_hung() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.stuck = True
        await somebody_asks_health(night)
        await night.until(HealthReason.HUNG, within=90)

    watch(FakeSglang(), story)


def test_a_server_that_reports_unhealthy_after_a_long_prefill_and_works_is_ok() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        sglang(night).unhealthy = True
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.OK}

    watch(FakeSglang(), story)


def test_the_loop_distinguishes_a_paused_old_server_from_a_hung_one() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.paused = True
        await night.until(HealthReason.PAUSED, within=90)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.PAUSED}
        night.fake.paused = False
        await night.until(HealthReason.OK, within=INTERVAL + 1)
        await night.pass_time(30)
        night.fake.stuck = True
        await night.until(HealthReason.HUNG, within=90)

    watch(FakeSglang(old=True), story)


def test_an_old_server_that_hangs_while_idle_is_found() -> None:
    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.OK}
        night.fake.stuck = True
        await night.until(HealthReason.HUNG, within=120)

    watch(FakeSglang(old=True, metrics=False), story)


def test_without_the_key_flags_and_metrics_are_still_read() -> None:
    async def story(night: Night) -> None:
        night.fake.key = "secret"
        night.fake.clients = 3
        await night.pass_time(1)
        assert await night.pass_time(120) == {HealthReason.OK}
        assert night.health.last_completion is None
        night.fake.paused = True
        await night.until(HealthReason.PAUSED, within=2 * INTERVAL + 1)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.PAUSED}
        night.fake.paused = False
        await night.until(HealthReason.OK, within=INTERVAL + 1)
        night.fake.stuck = True
        await night.until(HealthReason.HUNG, within=320)

    watch(FakeSglang(), story)


def test_with_the_key_all_endpoints_are_read() -> None:
    async def story(night: Night) -> None:
        night.fake.key = "secret"
        await night.pass_time(30)
        assert night.health.last_completion is not None
        assert night.health.last_completion.outcome is Completion.DONE
        assert night.health.stats.models == ("tiny",)

    watch(FakeSglang(), story, key="secret")


def test_a_killed_server_is_refused_within_one_interval() -> None:
    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.listening = False
        await night.until(HealthReason.REFUSED, within=INTERVAL + 1)

    watch(FakeSglang(), story)


def test_a_frozen_api_process_is_a_timeout() -> None:
    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.frozen = True
        await night.until(HealthReason.TIMEOUT, within=55)

    watch(FakeSglang(), story)
