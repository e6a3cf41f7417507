"""Servers that answer one request after the other, and are silent while they work on a long one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from fake_engines import FakeEngine, FakeGeneric, FakeVllm
from nights import Night, watch
from trainwarden_exporter.inference.engine_stats import Liveness
from trainwarden_exporter.inference.health import assess_health
from trainwarden_exporter.inference.health_model import (
    HealthLimits,
    HealthReason,
    HealthState,
    ProbeResult,
)
from trainwarden_exporter.inference.process_activity import ProcessActivity, read_activity
from trainwarden_exporter.processes.procfs import read_process

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tests.exporter.conftest import FakeProc

Look = Callable[[], ProcessActivity]
URL = "http://server:8000/status"
IDLE: Look = lambda: ProcessActivity(100.0)  # noqa: E731


def passed() -> float:
    return asyncio.get_running_loop().time()


def computes() -> ProcessActivity:
    return ProcessActivity(0.2 * passed())


def waits_for_a_cpu() -> ProcessActivity:
    """Others keep the CPUs of the host busy."""
    return ProcessActivity(100.0, runs=True)


def uses_gpu() -> ProcessActivity:
    return ProcessActivity(100.0, uses_gpu=True)


def writes() -> ProcessActivity:
    return ProcessActivity(100.0, moved_bytes=int(passed() * 1e6))


def polls() -> ProcessActivity:
    """Only a thread of it wakes now and then."""
    return ProcessActivity(0.02 * passed())


def watch_own(story: Callable[[Night], Awaitable[None]], **settings: Any) -> None:
    watch(FakeGeneric(), story, url=URL, **settings)


async def falls_silent(night: Night, look: Look) -> None:
    night.activity = look
    await night.until(HealthReason.OK, within=10)
    night.line.frozen_processes = (True,)


@pytest.mark.parametrize("look", [computes, waits_for_a_cpu, uses_gpu, writes])
def test_it_is_busy_until_it_answers(look: Look) -> None:
    async def story(night: Night) -> None:
        await falls_silent(night, look)
        assert await night.pass_time(150) == {HealthReason.OK, HealthReason.BUSY}
        assert night.health.up
        assert night.health.progress_timestamp == night.health.timestamp
        night.line.frozen_processes = (False,)
        await night.until(HealthReason.OK, within=30)
        assert await night.pass_time(300) == {HealthReason.OK}

    watch_own(story)


def test_beyond_its_limit_it_is_not_up_and_still_busy() -> None:
    async def story(night: Night) -> None:
        await falls_silent(night, computes)
        await night.pass_time(3500)
        assert night.health.up
        await night.pass_time(200)
        assert (night.reason, night.health.up) == (HealthReason.BUSY, False)
        night.line.frozen_processes = (False,)
        await night.until(HealthReason.OK, within=30)
        await falls_silent(night, computes)
        await night.pass_time(150)
        assert (night.reason, night.health.up) == (HealthReason.BUSY, True)

    watch_own(story)


@pytest.mark.parametrize(
    ("at_work", "reason"), [(True, HealthReason.OK), (False, HealthReason.TIMEOUT)]
)
def test_only_silences_without_work_are_repeated_timeouts(
    at_work: bool,
    reason: HealthReason,
) -> None:
    state = HealthState(reason=HealthReason.OK, has_served=True)
    silent, serving = ProbeResult(Liveness.SILENT, at_work=at_work), ProbeResult(Liveness.SERVING)
    for number, result in enumerate([silent, serving] * 4):
        state = assess_health(result, state, 20.0 * number, HealthLimits()).state
    assert state.reason is reason


def test_a_pause_between_two_parts_of_a_request_is_none_of_its_work() -> None:
    async def story(night: Night) -> None:
        await falls_silent(night, lambda: ProcessActivity(10.0 * (passed() // 30)))
        assert await night.pass_time(600) == {HealthReason.OK, HealthReason.BUSY}

    watch_own(story)


@pytest.mark.parametrize(
    ("look", "reason"),
    [
        (IDLE, HealthReason.HUNG),
        (lambda: ProcessActivity(100.0, stopped=True), HealthReason.HUNG),
        (polls, HealthReason.TIMEOUT),
        (lambda: ProcessActivity(100.0, waits=True), HealthReason.TIMEOUT),
    ],
)
def test_without_work_its_silence_is_a_fault(look: Look, reason: HealthReason) -> None:
    async def story(night: Night) -> None:
        await falls_silent(night, look)
        await night.until(reason, within=70)
        assert night.health.up is False

    watch_own(story)


def test_a_deadlock_after_work_is_found_as_soon_as_any_other() -> None:
    async def story(night: Night) -> None:
        await falls_silent(night, computes)
        await night.pass_time(120)
        night.activity = IDLE
        await night.pass_time(20)  # the round in which it began has both
        await night.until(HealthReason.HUNG, within=60)

    watch_own(story)


def test_a_known_engine_answers_while_it_works() -> None:
    engine: FakeEngine = FakeVllm()

    async def story(night: Night) -> None:
        await falls_silent(night, computes)
        assert await night.pass_time(150) == {HealthReason.OK, HealthReason.TIMEOUT}

    watch(engine, story)


def test_what_a_process_has_moved_is_read(proc: FakeProc) -> None:
    proc.add(100, ("python", "server.py"))
    (proc.root / "100" / "io").write_text("read_bytes: 7\nwrite_bytes: 5\n")
    process = read_process(100, proc.root)
    assert process is not None
    activity = read_activity([process.identity], proc.root)
    assert activity is not None
    assert activity.moved_bytes == 12
