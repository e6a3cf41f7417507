"""vLLM through all its states: what is found, when, and what is never done to it."""

from __future__ import annotations

import asyncio

import pytest

from fake_engines import FakeVllm
from nights import MIDNIGHT, Night, watch
from trainwarden_exporter.inference.reading import Completion
from trainwarden_exporter.inference.verdict import Reason

INTERVAL = 5.0
TEN_MINUTES = 600.0


def test_a_server_that_serves_is_ok_and_says_what_it_does() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 10
        await night.until(Reason.OK, within=INTERVAL)
        assert await night.pass_time(60) == {Reason.OK}
        reading = night.sighting.reading
        assert (reading.running, reading.waiting) == (8, 2)
        assert reading.models == ("tiny",)
        assert reading.weight_version == "0"
        assert night.sighting.up is True
        assert night.sighting.status == 200
        assert night.completions == 1, "one token to begin with, none while it works"

    watch(FakeVllm(), story)


def test_a_server_that_is_killed_is_refused_within_one_interval() -> None:
    async def story(night: Night) -> None:
        night.start_process()
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.listening = False
        await night.until(Reason.REFUSED, within=INTERVAL + 1)
        assert night.sighting.up is False
        assert night.sighting.reading.running is None, "what it said is of a server that is gone"
        assert night.sighting.deep is None, "and so is its last token"

    watch(FakeVllm(), story)


def test_a_young_process_that_does_not_listen_yet_is_starting() -> None:
    async def story(night: Night) -> None:
        night.fake.listening = False
        night.start_process()
        assert await night.pass_time(300) == {Reason.STARTING}
        assert night.sighting.up is False
        night.fake.listening = True
        await night.until(Reason.OK, within=INTERVAL + 1)

    watch(FakeVllm(), story)


def test_a_server_that_never_listens_is_refused_after_twice_its_grace() -> None:
    async def story(night: Night) -> None:
        night.fake.listening = False
        night.start_process()
        assert await night.pass_time(239) == {Reason.STARTING}
        assert night.sighting.reason_timestamp == MIDNIGHT, "so that a rule can tell a person first"
        await night.until(Reason.REFUSED, within=INTERVAL + 2)

    watch(FakeVllm(), story, start_grace=120)


def test_without_a_process_it_is_refused_at_once() -> None:
    async def story(night: Night) -> None:
        night.fake.listening = False
        night.end_process()
        assert await night.pass_time(60) == {Reason.REFUSED}

    watch(FakeVllm(), story)


def test_where_nobody_knows_the_process_the_first_refusals_may_be_a_start() -> None:
    async def story(night: Night) -> None:
        night.fake.listening = False
        assert await night.pass_time(119) == {Reason.STARTING}
        await night.until(Reason.REFUSED, within=INTERVAL + 2)

    watch(FakeVllm(), story, start_grace=120)


def test_a_restart_goes_from_refused_over_starting_to_ok() -> None:
    async def story(night: Night) -> None:
        night.start_process()
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.listening = False
        night.end_process()
        await night.until(Reason.REFUSED, within=INTERVAL + 1)
        night.start_process()
        await night.until(Reason.STARTING, within=INTERVAL + 1)
        before = night.completions
        night.fake.listening = True
        await night.until(Reason.OK, within=INTERVAL + 1)
        await night.pass_time(INTERVAL + 1)
        assert night.completions == before + 1, "proven by a token at once"
        assert night.sighting.deep is not None
        assert night.sighting.deep.completion is Completion.DONE

    watch(FakeVllm(), story)


def test_a_port_that_closes_under_a_young_server_is_no_start() -> None:
    async def story(night: Night) -> None:
        night.start_process()
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.listening = False
        await night.pass_time(INTERVAL + 1)
        assert await night.pass_time(60) == {Reason.REFUSED}

    watch(FakeVllm(), story)


def test_an_engine_that_dies_is_known_at_once_and_for_as_long_as_the_api_outlives_it() -> None:
    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.dead = True
        await night.until(Reason.ENGINE_DEAD, within=INTERVAL + 1)
        assert await night.pass_time(TEN_MINUTES) == {Reason.ENGINE_DEAD}
        assert night.sighting.up is False

    watch(FakeVllm(), story)


def test_a_hang_in_the_middle_of_requests_is_found() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        await night.pass_time(60)
        night.fake.stuck = True
        assert await night.pass_time(40) == {Reason.OK}, "not before two tokens were waited for"
        await night.until(Reason.HUNG, within=30)
        assert night.sighting.up is False
        assert night.sighting.status == 200, "/health lies"
        assert night.sighting.reading.running == 3, "and so do the gauges"

    watch(FakeVllm(), story)


@pytest.mark.parametrize("dev_mode", [True, False])
@pytest.mark.parametrize("log_stats", [True, False])
def test_a_hang_from_idle_is_found_though_it_looks_idle(dev_mode: bool, log_stats: bool) -> None:
    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        assert await night.pass_time(TEN_MINUTES) == {Reason.OK}
        night.fake.stuck = True
        await night.until(Reason.HUNG, within=120)
        assert not night.sighting.reading.running, "it does look idle"

    watch(FakeVllm(dev_mode=dev_mode, log_stats=log_stats), story)


def test_a_server_that_comes_back_to_life_is_ok_again() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.stuck = True
        await night.until(Reason.HUNG, within=90)
        night.fake.stuck = night.fake.was_busy = False
        await night.until(Reason.OK, within=INTERVAL + 1)

    watch(FakeVllm(), story)


def test_a_pause_of_ten_minutes_is_a_pause_and_is_not_disturbed() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        await night.pass_time(60)
        before = night.completions
        night.fake.paused = True
        await night.until(Reason.PAUSED, within=2 * INTERVAL + 1)
        assert await night.pass_time(TEN_MINUTES) == {Reason.PAUSED}
        assert night.sighting.up is True
        assert night.completions == before
        night.fake.paused = False
        await night.until(Reason.OK, within=INTERVAL + 1)
        assert await night.pass_time(120) == {Reason.OK}

    watch(FakeVllm(), story)


def test_a_pause_beyond_its_limit_stays_a_pause() -> None:
    async def story(night: Night) -> None:
        night.fake.paused = True
        await night.pass_time(INTERVAL)
        assert await night.pass_time(1800) == {Reason.PAUSED}
        assert night.sighting.reason_timestamp == pytest.approx(MIDNIGHT, abs=6)

    watch(FakeVllm(), story, pause_limit=60)


def test_a_server_that_turns_requests_away_because_it_is_paused_is_paused() -> None:
    async def story(night: Night) -> None:
        assert isinstance(night.fake, FakeVllm)
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.paused = night.fake.rejects_when_paused = True
        await night.until(Reason.PAUSED, within=90)
        assert await night.pass_time(TEN_MINUTES) == {Reason.PAUSED}
        night.fake.paused = False
        await night.until(Reason.OK, within=30)

    watch(FakeVllm(dev_mode=False), story)


def test_a_server_that_sleeps_is_asleep() -> None:
    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.asleep = True
        await night.until(Reason.SLEEPING, within=INTERVAL + 1)
        assert await night.pass_time(TEN_MINUTES) == {Reason.SLEEPING}
        assert night.sighting.up is True
        night.fake.asleep = False
        await night.until(Reason.OK, within=INTERVAL + 1)

    watch(FakeVllm(), story)


def test_a_weight_load_of_ten_minutes_is_no_hang() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        before = night.completions
        night.fake.updating = True
        await night.until(Reason.UPDATING_WEIGHTS, within=INTERVAL + 1)
        assert await night.pass_time(TEN_MINUTES) == {Reason.UPDATING_WEIGHTS}
        assert night.completions == before
        night.fake.version, night.fake.updating = "1", False
        await night.until(Reason.OK, within=INTERVAL + 1)
        await night.pass_time(60)
        assert night.sighting.reading.weight_version == "1"

    watch(FakeVllm(), story)


def test_a_hang_right_after_a_weight_load_is_found() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        night.fake.updating = True
        await night.until(Reason.UPDATING_WEIGHTS, within=INTERVAL)
        await night.pass_time(TEN_MINUTES)
        night.fake.stuck, night.fake.updating = True, False
        await night.until(Reason.HUNG, within=90)

    watch(FakeVllm(), story)


def test_an_update_that_only_the_log_tells_of_is_believed_up_to_the_limit() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        night.told_update = asyncio.get_running_loop().time()
        night.fake.stuck = True
        await night.until(Reason.UPDATING_WEIGHTS, within=2 * INTERVAL + 1)
        assert await night.pass_time(280) == {Reason.UPDATING_WEIGHTS}
        await night.until(Reason.HUNG, within=120)

    watch(FakeVllm(log_stats=False), story, pause_limit=300)


def test_a_log_that_tells_of_an_update_does_not_outweigh_work_that_gets_done() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        night.told_update = 0.0
        await night.pass_time(30)
        assert await night.pass_time(60) == {Reason.OK}

    watch(FakeVllm(), story)


def test_an_overloaded_server_is_ok_and_is_not_asked_for_more() -> None:
    async def story(night: Night) -> None:
        night.fake.clients, night.fake.overloaded = 500, True
        await night.pass_time(INTERVAL)
        assert await night.pass_time(TEN_MINUTES) == {Reason.OK}
        assert night.completions == 1
        assert night.sighting.reading.waiting == 492

    watch(FakeVllm(), story)


def test_a_full_queue_that_does_not_move_is_a_hang() -> None:
    async def story(night: Night) -> None:
        night.fake.clients, night.fake.overloaded = 500, True
        await night.pass_time(60)
        night.fake.stuck = True
        await night.until(Reason.HUNG, within=90)

    watch(FakeVllm(), story)


def test_a_busy_server_that_says_nothing_for_forty_seconds_is_not_down() -> None:
    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.frozen = True
        assert await night.pass_time(40) == {Reason.OK}
        night.fake.frozen = False
        assert await night.pass_time(60) == {Reason.OK}

    watch(FakeVllm(), story)


def test_a_frozen_api_process_is_a_timeout_and_its_return_is_seen_at_once() -> None:
    async def story(night: Night) -> None:
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.frozen = True
        assert await night.until(Reason.TIMEOUT, within=55) > 40
        assert night.sighting.status is None
        assert await night.pass_time(TEN_MINUTES) == {Reason.TIMEOUT}
        night.fake.frozen = False
        await night.until(Reason.OK, within=20)

    watch(FakeVllm(), story)


def test_one_frozen_api_process_of_two_is_a_timeout_too() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        night.line.frozen_processes = (False, True)
        await night.until(Reason.TIMEOUT, within=120)
        assert await night.pass_time(TEN_MINUTES) == {Reason.TIMEOUT}
        night.line.frozen_processes = (False, False)
        await night.until(Reason.OK, within=90)

    watch(FakeVllm(), story)


def test_one_engine_of_several_that_hangs_is_found_and_asked_for_by_its_rank() -> None:
    async def story(night: Night) -> None:
        assert isinstance(night.fake, FakeVllm)
        night.fake.engines, night.fake.clients = 4, 3
        await night.until(Reason.OK, within=INTERVAL)
        await night.pass_time(60)
        night.fake.stuck_engines = {2}
        await night.until(Reason.HUNG, within=90)
        night.fake.stuck_engines = set()
        await night.until(Reason.OK, within=INTERVAL + 1)

    watch(FakeVllm(), story)


def test_without_the_key_the_token_cannot_be_asked_for_and_that_is_no_fault_of_the_server() -> None:
    async def story(night: Night) -> None:
        night.fake.key = "secret"
        assert await night.pass_time(TEN_MINUTES) == {Reason.OK}
        assert night.sighting.deep is None
        assert night.sighting.reading.models == ("tiny",), "its metrics name the model"
        assert night.completions <= 4

    watch(FakeVllm(), story)


def test_with_the_key_it_can() -> None:
    async def story(night: Night) -> None:
        night.fake.key = "secret"
        await night.pass_time(30)
        assert night.sighting.deep is not None
        assert night.sighting.deep.completion is Completion.DONE

    watch(FakeVllm(), story, key="secret")


def test_a_503_that_is_not_of_a_dead_engine_has_to_last() -> None:
    async def story(night: Night) -> None:
        assert isinstance(night.fake, FakeVllm)
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.scaling = True
        assert await night.pass_time(2 * INTERVAL - 1) == {Reason.OK}
        await night.until(Reason.STATUS, within=2 * INTERVAL)

    watch(FakeVllm(), story)


def test_a_server_that_compiles_its_kernels_at_the_first_request_is_starting() -> None:
    async def story(night: Night) -> None:
        night.start_process()
        night.fake.stuck = True
        await night.until(Reason.STARTING, within=60)
        assert await night.pass_time(200) == {Reason.STARTING}
        night.fake.stuck = night.fake.was_busy = False
        await night.until(Reason.OK, within=90)

    watch(FakeVllm(), story)


def test_one_that_has_not_come_to_life_within_twice_its_grace_is_hung() -> None:
    async def story(night: Night) -> None:
        night.start_process()
        night.fake.stuck = True
        await night.until(Reason.STARTING, within=60)
        assert await night.pass_time(500) == {Reason.STARTING}
        await night.until(Reason.HUNG, within=100)

    watch(FakeVllm(), story, start_grace=300)


def test_a_hung_server_is_never_asked_for_two_tokens_at_once_and_ever_more_seldom() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.stuck = True
        before, most = night.completions, 0
        for _ in range(1200):
            await night.pass_time(0.5)
            most = max(most, night.fake.parked)
        assert most == 1
        assert night.completions - before <= 10, "in ten minutes"
        assert night.reason is Reason.HUNG

    watch(FakeVllm(), story)


def test_switched_off_no_token_is_asked_for_and_a_long_stall_is_proof_enough() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(Reason.OK, within=INTERVAL)
        night.fake.stuck = True
        assert await night.pass_time(290) == {Reason.OK}
        await night.until(Reason.HUNG, within=30)
        assert night.completions == 0

    watch(FakeVllm(), story, deep_probe={"enabled": False})


def test_nothing_is_ever_asked_that_changes_the_server() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.pass_time(60)
        for state in ("paused", "asleep", "updating", "overloaded", "stuck", "dead"):
            setattr(night.fake, state, True)
            await night.pass_time(300)
            setattr(night.fake, state, False)
        posts = {asked for asked in night.fake.asked if not asked.startswith("GET ")}
        assert posts == {"POST /v1/completions"}
        assert {asked.removeprefix("GET ") for asked in night.fake.asked} - posts == {
            *("/health", "/metrics", "/v1/models", "/is_paused", "/load", "/weight_info"),
        }

    watch(FakeVllm(), story)
