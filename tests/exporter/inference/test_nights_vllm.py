"""vLLM through all its states: assessments, their delays, and requests never sent."""

from __future__ import annotations

import asyncio

import pytest

from fake_engines import FakeVllm
from nights import MIDNIGHT, Night, watch
from trainwarden_exporter.inference.engine_stats import Completion
from trainwarden_exporter.inference.health_model import HealthReason

INTERVAL = 5.0
TEN_MINUTES = 600.0


def test_a_server_that_serves_is_ok_and_has_statistics() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 10
        await night.until(HealthReason.OK, within=INTERVAL)
        assert await night.pass_time(60) == {HealthReason.OK}
        reading = night.health.stats
        assert (reading.running, reading.waiting) == (8, 2)
        assert reading.models == ("tiny",)
        assert reading.weight_version == "0"
        assert night.health.up is True
        assert night.health.status == 200
        assert night.completions == 1, "one token to begin with, none while it works"

    watch(FakeVllm(), story)


def test_a_server_that_is_killed_is_refused_within_one_interval() -> None:
    async def story(night: Night) -> None:
        night.start_process()
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.listening = False
        await night.until(HealthReason.REFUSED, within=INTERVAL + 1)
        assert night.health.up is False
        assert night.health.stats.running is None, "statistics of a server that is gone"
        assert night.health.last_completion is None, "and so is its last token"

    watch(FakeVllm(), story)


def test_a_young_process_that_does_not_listen_yet_is_starting() -> None:
    async def story(night: Night) -> None:
        night.fake.listening = False
        night.start_process()
        assert await night.pass_time(300) == {HealthReason.STARTING}
        assert night.health.up is False
        night.fake.listening = True
        await night.until(HealthReason.OK, within=INTERVAL + 1)

    watch(FakeVllm(), story)


def test_a_server_that_never_listens_is_refused_after_twice_its_grace() -> None:
    async def story(night: Night) -> None:
        night.fake.listening = False
        night.start_process()
        assert await night.pass_time(239) == {HealthReason.STARTING}
        assert night.health.reason_timestamp == MIDNIGHT, (
            "so that a rule can alert the operator first"
        )
        await night.until(HealthReason.REFUSED, within=INTERVAL + 2)

    watch(FakeVllm(), story, start_grace=120)


def test_without_a_process_it_is_refused_at_once() -> None:
    async def story(night: Night) -> None:
        night.fake.listening = False
        night.end_process()
        assert await night.pass_time(60) == {HealthReason.REFUSED}

    watch(FakeVllm(), story)


def test_with_an_unknown_process_the_first_refusals_count_as_a_start() -> None:
    async def story(night: Night) -> None:
        night.fake.listening = False
        assert await night.pass_time(119) == {HealthReason.STARTING}
        await night.until(HealthReason.REFUSED, within=INTERVAL + 2)

    watch(FakeVllm(), story, start_grace=120)


def test_a_restart_goes_from_refused_over_starting_to_ok() -> None:
    async def story(night: Night) -> None:
        night.start_process()
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.listening = False
        night.end_process()
        await night.until(HealthReason.REFUSED, within=INTERVAL + 1)
        night.start_process()
        await night.until(HealthReason.STARTING, within=INTERVAL + 1)
        before = night.completions
        night.fake.listening = True
        await night.until(HealthReason.OK, within=INTERVAL + 1)
        await night.pass_time(INTERVAL + 1)
        assert night.completions == before + 1, "proven by a token at once"
        assert night.health.last_completion is not None
        assert night.health.last_completion.outcome is Completion.DONE

    watch(FakeVllm(), story)


def test_a_young_server_whose_port_closes_is_not_starting() -> None:
    async def story(night: Night) -> None:
        night.start_process()
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.listening = False
        await night.pass_time(INTERVAL + 1)
        assert await night.pass_time(60) == {HealthReason.REFUSED}

    watch(FakeVllm(), story)


def test_a_dead_engine_is_known_at_once_and_as_long_as_its_api_answers() -> None:
    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.dead = True
        await night.until(HealthReason.ENGINE_DEAD, within=INTERVAL + 1)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.ENGINE_DEAD}
        assert night.health.up is False

    watch(FakeVllm(), story)


def test_a_hang_in_the_middle_of_requests_is_found() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        await night.pass_time(60)
        night.fake.stuck = True
        assert await night.pass_time(40) == {HealthReason.OK}, (
            "not before two tokens were waited for"
        )
        await night.until(HealthReason.HUNG, within=30)
        assert night.health.up is False
        assert night.health.status == 200, "/health lies"
        assert night.health.stats.running == 3, "and so do the gauges"

    watch(FakeVllm(), story)


@pytest.mark.parametrize("dev_mode", [True, False])
@pytest.mark.parametrize("log_stats", [True, False])
def test_a_hang_while_idle_is_found_though_it_looks_idle(dev_mode: bool, log_stats: bool) -> None:
    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.OK}
        night.fake.stuck = True
        await night.until(HealthReason.HUNG, within=120)
        assert not night.health.stats.running, "it does look idle"

    watch(FakeVllm(dev_mode=dev_mode, log_stats=log_stats), story)


def test_a_server_that_recovers_is_ok_again() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.stuck = True
        await night.until(HealthReason.HUNG, within=90)
        night.fake.stuck = night.fake.was_busy = False
        await night.until(HealthReason.OK, within=INTERVAL + 1)

    watch(FakeVllm(), story)


def test_a_pause_of_ten_minutes_is_a_pause_and_is_not_disturbed() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        await night.pass_time(60)
        before = night.completions
        night.fake.paused = True
        await night.until(HealthReason.PAUSED, within=2 * INTERVAL + 1)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.PAUSED}
        assert night.health.up is True
        assert night.completions == before
        night.fake.paused = False
        await night.until(HealthReason.OK, within=INTERVAL + 1)
        assert await night.pass_time(120) == {HealthReason.OK}

    watch(FakeVllm(), story)


def test_a_pause_beyond_its_limit_stays_a_pause() -> None:
    async def story(night: Night) -> None:
        night.fake.paused = True
        await night.pass_time(INTERVAL)
        assert await night.pass_time(1800) == {HealthReason.PAUSED}
        assert night.health.reason_timestamp == pytest.approx(MIDNIGHT, abs=6)

    watch(FakeVllm(), story, pause_limit=60)


def test_a_server_that_rejects_requests_because_it_is_paused_is_paused() -> None:
    async def story(night: Night) -> None:
        assert isinstance(night.fake, FakeVllm)
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.paused = night.fake.rejects_when_paused = True
        await night.until(HealthReason.PAUSED, within=90)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.PAUSED}
        night.fake.paused = False
        await night.until(HealthReason.OK, within=30)

    watch(FakeVllm(dev_mode=False), story)


def test_a_sleeping_server_is_recognised() -> None:
    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.asleep = True
        await night.until(HealthReason.SLEEPING, within=INTERVAL + 1)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.SLEEPING}
        assert night.health.up is True
        night.fake.asleep = False
        await night.until(HealthReason.OK, within=INTERVAL + 1)

    watch(FakeVllm(), story)


def test_a_weight_update_of_ten_minutes_is_no_hang() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        before = night.completions
        night.fake.updating = True
        await night.until(HealthReason.UPDATING_WEIGHTS, within=INTERVAL + 1)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.UPDATING_WEIGHTS}
        assert night.completions == before
        night.fake.version, night.fake.updating = "1", False
        await night.until(HealthReason.OK, within=INTERVAL + 1)
        await night.pass_time(60)
        assert night.health.stats.weight_version == "1"

    watch(FakeVllm(), story)


def test_a_hang_right_after_a_weight_update_is_found() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        night.fake.updating = True
        await night.until(HealthReason.UPDATING_WEIGHTS, within=INTERVAL)
        await night.pass_time(TEN_MINUTES)
        night.fake.stuck, night.fake.updating = True, False
        await night.until(HealthReason.HUNG, within=90)

    watch(FakeVllm(), story)


def test_an_update_known_only_from_the_log_counts_up_to_the_limit() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        night.logged_update = asyncio.get_running_loop().time()
        night.fake.stuck = True
        await night.until(HealthReason.UPDATING_WEIGHTS, within=2 * INTERVAL + 1)
        assert await night.pass_time(280) == {HealthReason.UPDATING_WEIGHTS}
        await night.until(HealthReason.HUNG, within=120)

    watch(FakeVllm(log_stats=False), story, pause_limit=300)


def test_observed_work_outweighs_an_update_in_the_log() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        night.logged_update = 0.0
        await night.pass_time(30)
        assert await night.pass_time(60) == {HealthReason.OK}

    watch(FakeVllm(), story)


def test_an_overloaded_server_is_ok_and_gets_no_completions() -> None:
    async def story(night: Night) -> None:
        night.fake.clients, night.fake.overloaded = 500, True
        await night.pass_time(INTERVAL)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.OK}
        assert night.completions == 1
        assert night.health.stats.waiting == 492

    watch(FakeVllm(), story)


def test_a_full_queue_that_does_not_move_is_a_hang() -> None:
    async def story(night: Night) -> None:
        night.fake.clients, night.fake.overloaded = 500, True
        await night.pass_time(60)
        night.fake.stuck = True
        await night.until(HealthReason.HUNG, within=90)

    watch(FakeVllm(), story)


def test_a_busy_server_without_an_answer_for_forty_seconds_is_not_down() -> None:
    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.frozen = True
        assert await night.pass_time(40) == {HealthReason.OK}
        night.fake.frozen = False
        assert await night.pass_time(60) == {HealthReason.OK}

    watch(FakeVllm(), story)


def test_a_frozen_api_process_is_a_timeout_until_it_returns() -> None:
    async def story(night: Night) -> None:
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.frozen = True
        assert await night.until(HealthReason.TIMEOUT, within=55) > 40
        assert night.health.status is None
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.TIMEOUT}
        night.fake.frozen = False
        await night.until(HealthReason.OK, within=20)

    watch(FakeVllm(), story)


def test_one_frozen_api_process_of_two_is_a_timeout_too() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        night.line.frozen_processes = (False, True)
        await night.until(HealthReason.TIMEOUT, within=120)
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.TIMEOUT}
        night.line.frozen_processes = (False, False)
        await night.until(HealthReason.OK, within=90)

    watch(FakeVllm(), story)


def test_one_hung_engine_of_several_is_found_by_its_rank() -> None:
    async def story(night: Night) -> None:
        assert isinstance(night.fake, FakeVllm)
        night.fake.engines, night.fake.clients = 4, 3
        await night.until(HealthReason.OK, within=INTERVAL)
        await night.pass_time(60)
        night.fake.stuck_engines = {2}
        await night.until(HealthReason.HUNG, within=90)
        night.fake.stuck_engines = set()
        await night.until(HealthReason.OK, within=INTERVAL + 1)

    watch(FakeVllm(), story)


def test_a_completion_without_the_key_is_impossible_and_no_failure() -> None:
    async def story(night: Night) -> None:
        night.fake.key = "secret"
        assert await night.pass_time(TEN_MINUTES) == {HealthReason.OK}
        assert night.health.last_completion is None
        assert night.health.stats.models == ("tiny",), "its metrics name the model"
        assert night.completions <= 4

    watch(FakeVllm(), story)


def test_a_completion_with_the_key_is_possible() -> None:
    async def story(night: Night) -> None:
        night.fake.key = "secret"
        await night.pass_time(30)
        assert night.health.last_completion is not None
        assert night.health.last_completion.outcome is Completion.DONE

    watch(FakeVllm(), story, key="secret")


def test_a_503_without_a_dead_engine_must_last() -> None:
    async def story(night: Night) -> None:
        assert isinstance(night.fake, FakeVllm)
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.scaling = True
        assert await night.pass_time(2 * INTERVAL - 1) == {HealthReason.OK}
        await night.until(HealthReason.STATUS, within=2 * INTERVAL)

    watch(FakeVllm(), story)


def test_a_server_that_compiles_its_kernels_at_the_first_request_is_starting() -> None:
    async def story(night: Night) -> None:
        night.start_process()
        night.fake.stuck = True
        await night.until(HealthReason.STARTING, within=60)
        assert await night.pass_time(200) == {HealthReason.STARTING}
        night.fake.stuck = night.fake.was_busy = False
        await night.until(HealthReason.OK, within=90)

    watch(FakeVllm(), story)


def test_a_server_that_is_not_up_within_twice_its_grace_is_hung() -> None:
    async def story(night: Night) -> None:
        night.start_process()
        night.fake.stuck = True
        await night.until(HealthReason.STARTING, within=60)
        assert await night.pass_time(500) == {HealthReason.STARTING}
        await night.until(HealthReason.HUNG, within=100)

    watch(FakeVllm(), story, start_grace=300)


def test_a_hung_server_gets_one_completion_at_a_time_and_ever_fewer() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.stuck = True
        before, most = night.completions, 0
        for _ in range(1200):
            await night.pass_time(0.5)
            most = max(most, night.fake.parked)
        assert most == 1
        assert night.completions - before <= 10, "in ten minutes"
        assert night.reason is HealthReason.HUNG

    watch(FakeVllm(), story)


def test_without_completions_a_long_stall_is_proof() -> None:
    async def story(night: Night) -> None:
        night.fake.clients = 3
        await night.until(HealthReason.OK, within=INTERVAL)
        night.fake.stuck = True
        assert await night.pass_time(290) == {HealthReason.OK}
        await night.until(HealthReason.HUNG, within=30)
        assert night.completions == 0

    watch(FakeVllm(), story, deep_probe={"enabled": False})


def test_no_request_changes_the_server() -> None:
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
