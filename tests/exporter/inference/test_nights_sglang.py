"""SGLang through all its states: above all, a pause is not a death."""

from __future__ import annotations

import asyncio

import pytest

from fake_engines import FakeSglang, Request
from nights import Night, watch
from trainwarden_exporter.inference.reading import Completion
from trainwarden_exporter.inference.verdict import Reason

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
        await night.until(Reason.OK, within=INTERVAL)
        assert await night.pass_time(120) == {Reason.OK}
        reading = night.sighting.reading
        assert reading.running == 8
        assert reading.models == ("tiny",)
        assert reading.weight_version == "0"
        assert night.completions == 1

    watch(FakeSglang(**kind), story)


@pytest.mark.parametrize("kind", SERVERS)
def test_an_idle_server_is_not_asked_for_tokens_because_its_schedulers_say_how_they_are(
    kind: dict[str, bool],
) -> None:
    async def story(night: Night) -> None:
        assert await night.pass_time(TEN_MINUTES) == {Reason.OK}
        assert night.completions == 1

    watch(FakeSglang(**kind), story)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("kind", SERVERS)
def test_a_pause_of_ten_minutes_is_a_pause(kind: dict[str, bool], in_place: bool) -> None:
    async def story(night: Night) -> None:
        sglang(night).in_place = in_place
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        await night.pass_time(60)
        before = night.completions
        night.fake.paused = True
        await night.until(Reason.PAUSED, within=2 * INTERVAL + 1)
        assert await night.pass_time(TEN_MINUTES) == {Reason.PAUSED}
        assert night.sighting.up is True
        assert night.sighting.status == 503
        assert night.completions == before
        night.fake.paused = False
        await night.until(Reason.OK, within=INTERVAL + 1)
        assert await night.pass_time(120) == {Reason.OK}

    watch(FakeSglang(**kind), story)


def test_a_pause_in_which_somebody_asked_for_its_health_is_still_a_pause() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.paused = True
        await night.until(Reason.PAUSED, within=2 * INTERVAL + 1)
        await somebody_asks_health(night)
        assert sglang(night).unhealthy
        assert await night.pass_time(TEN_MINUTES) == {Reason.PAUSED}

    watch(FakeSglang(), story)


def test_so_is_one_that_loads_weights_meanwhile() -> None:
    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.paused = True
        await night.until(Reason.PAUSED, within=2 * INTERVAL + 1)
        await somebody_asks_health(night)
        night.fake.updating = True  # the schedulers answer nothing while they load
        assert await night.pass_time(TEN_MINUTES) == {Reason.PAUSED}

    watch(FakeSglang(metrics=False), story)


def test_a_pause_first_seen_when_the_server_calls_itself_unhealthy_is_told_by_the_loop() -> None:
    async def story(night: Night) -> None:
        night.fake.paused = sglang(night).unhealthy = True
        night.start_process()
        await night.pass_time(1)
        assert await night.pass_time(60) == {Reason.PAUSED}

    watch(FakeSglang(), story, start_grace=0)


def test_our_own_probes_never_make_it_unhealthy() -> None:
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


def test_an_unpaused_weight_load_of_ten_minutes_is_no_hang() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        before = night.completions
        night.fake.updating = True
        await night.until(Reason.UPDATING_WEIGHTS, within=INTERVAL + 1)
        assert await night.pass_time(TEN_MINUTES) == {Reason.UPDATING_WEIGHTS}
        assert night.completions == before
        night.fake.updating = False
        await night.until(Reason.OK, within=INTERVAL + 1)

    watch(FakeSglang(), story)


def test_without_metrics_the_log_has_to_tell_of_it() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        await night.pass_time(30)
        night.fake.updating = True
        night.told_update = asyncio.get_running_loop().time()
        await night.until(Reason.UPDATING_WEIGHTS, within=INTERVAL + 1)
        assert await night.pass_time(500) == {Reason.UPDATING_WEIGHTS}

    watch(FakeSglang(metrics=False), story)


def test_a_server_that_warms_up_is_starting() -> None:
    async def story(night: Night) -> None:
        night.fake.ready = False
        night.start_process()
        await night.pass_time(1)
        assert await night.pass_time(300) == {Reason.STARTING}
        night.fake.ready = True
        await night.until(Reason.OK, within=INTERVAL + 1)

    watch(FakeSglang(), story)


def test_so_it_is_where_nobody_knows_its_process() -> None:
    async def story(night: Night) -> None:
        night.fake.listening = night.fake.ready = False
        await night.until(Reason.STARTING, within=INTERVAL)
        night.fake.listening = True
        assert await night.pass_time(120) == {Reason.STARTING}
        night.fake.ready = True
        await night.until(Reason.OK, within=INTERVAL + 1)
        night.fake.listening = night.fake.ready = False
        await night.until(Reason.REFUSED, within=INTERVAL + 1)
        night.fake.listening = True
        await night.until(Reason.STARTING, within=INTERVAL + 1)
        assert await night.pass_time(120) == {Reason.STARTING}

    watch(FakeSglang(), story)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_hang_in_the_middle_of_requests_is_found(kind: dict[str, bool]) -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        await night.pass_time(60)
        night.fake.stuck = True
        await night.until(Reason.HUNG, within=90)
        assert night.sighting.status == 200
        night.fake.stuck = False
        await night.until(Reason.OK, within=90)

    watch(FakeSglang(**kind), story)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_hang_from_idle_is_found(kind: dict[str, bool]) -> None:
    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        assert await night.pass_time(TEN_MINUTES) == {Reason.OK}
        night.fake.stuck = True
        await night.until(Reason.HUNG, within=120)

    watch(FakeSglang(**kind), story)


def test_a_server_that_calls_itself_unhealthy_and_hangs_is_hung() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.stuck = True
        await somebody_asks_health(night)
        await night.until(Reason.HUNG, within=90)

    watch(FakeSglang(), story)


def test_one_that_calls_itself_unhealthy_after_a_long_prefill_and_works_is_ok() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        sglang(night).unhealthy = True
        assert await night.pass_time(TEN_MINUTES) == {Reason.OK}

    watch(FakeSglang(), story)


def test_an_old_server_in_a_pause_is_told_from_one_that_hangs_by_its_loop() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.paused = True
        await night.until(Reason.PAUSED, within=90)
        assert await night.pass_time(TEN_MINUTES) == {Reason.PAUSED}
        night.fake.paused = False
        await night.until(Reason.OK, within=INTERVAL + 1)
        await night.pass_time(30)
        night.fake.stuck = True
        await night.until(Reason.HUNG, within=90)

    watch(FakeSglang(old=True), story)


def test_an_old_server_that_hangs_from_idle_is_found() -> None:
    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        assert await night.pass_time(TEN_MINUTES) == {Reason.OK}
        night.fake.stuck = True
        await night.until(Reason.HUNG, within=120)

    watch(FakeSglang(old=True, metrics=False), story)


def test_without_the_key_its_flags_and_metrics_still_tell() -> None:
    async def story(night: Night) -> None:
        night.fake.key = "secret"
        night.fake.clients = 3
        await night.pass_time(1)
        assert await night.pass_time(120) == {Reason.OK}
        assert night.sighting.deep is None
        night.fake.paused = True
        await night.until(Reason.PAUSED, within=2 * INTERVAL + 1)
        assert await night.pass_time(TEN_MINUTES) == {Reason.PAUSED}
        night.fake.paused = False
        await night.until(Reason.OK, within=INTERVAL + 1)
        night.fake.stuck = True
        await night.until(Reason.HUNG, within=320)

    watch(FakeSglang(), story)


def test_with_the_key_it_is_asked_all() -> None:
    async def story(night: Night) -> None:
        night.fake.key = "secret"
        await night.pass_time(30)
        assert night.sighting.deep is not None
        assert night.sighting.deep.completion is Completion.DONE
        assert night.sighting.reading.models == ("tiny",)

    watch(FakeSglang(), story, key="secret")


def test_a_killed_server_is_refused_within_one_interval() -> None:
    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.listening = False
        await night.until(Reason.REFUSED, within=INTERVAL + 1)

    watch(FakeSglang(), story)


def test_a_frozen_api_process_is_a_timeout() -> None:
    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.frozen = True
        await night.until(Reason.TIMEOUT, within=55)

    watch(FakeSglang(), story)
