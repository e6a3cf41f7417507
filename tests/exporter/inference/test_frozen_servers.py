"""Servers that accept connections and do not answer, and what the kernel shows of them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from fake_engines import FakeVllm
from nights import Night, watch
from trainwarden_exporter.inference.health_model import HealthReason, ProcessInfo
from trainwarden_exporter.inference.process_activity import ProcessActivity, read_activity
from trainwarden_exporter.inference.server_discovery import ServerDiscovery
from trainwarden_exporter.processes.procfs import read_process
from trainwarden_exporter.run_config import RunConfig

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc

    WaitUntil = Callable[[Callable[[], bool]], None]


def using_cpu(share: float) -> Callable[[], ProcessActivity]:
    """Processes that use this share of a CPU, by the clock of the night."""
    return lambda: ProcessActivity(share * asyncio.get_running_loop().time())


def freeze(night: Night) -> None:
    night.line.frozen_processes = (True,)


def test_a_stopped_server_is_proven_within_seconds() -> None:
    async def story(night: Night) -> None:
        night.activity = using_cpu(0.5)
        await night.until(HealthReason.OK, within=10)
        freeze(night)
        night.activity = lambda: ProcessActivity(100.0, stopped=True)
        assert await night.until(HealthReason.HUNG, within=60) <= 10
        assert "stopped" in night.health.detail
        night.line.frozen_processes = (False,)
        night.activity = using_cpu(0.5)
        await night.until(HealthReason.OK, within=30)

    watch(FakeVllm(), story)


def test_a_silent_server_without_cpu_time_hangs_after_three_rounds() -> None:
    async def story(night: Night) -> None:
        night.activity = using_cpu(0.5)
        await night.until(HealthReason.OK, within=10)
        freeze(night)
        night.activity = using_cpu(0.001)
        seen = await night.pass_time(40)
        assert seen == {HealthReason.OK}
        assert await night.until(HealthReason.HUNG, within=60) <= 25

    watch(FakeVllm(), story)


def test_a_silent_server_that_is_busy_or_waits_for_a_disk_is_only_late() -> None:
    for activity in (using_cpu(0.5), lambda: ProcessActivity(100.0, waits=True)):

        async def story(night: Night, activity: Callable[[], ProcessActivity] = activity) -> None:
            await night.until(HealthReason.OK, within=10)
            night.activity = activity
            freeze(night)
            seen = await night.pass_time(120)
            assert seen == {HealthReason.OK, HealthReason.TIMEOUT}

        watch(FakeVllm(), story)


def test_a_real_process_that_is_stopped_is_seen(wait_until: WaitUntil) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = read_process(child.pid)
        assert process is not None
        known = (process.identity,)
        try:
            before = read_activity(known)
            assert before is not None
            assert not before.stopped
            os.kill(child.pid, signal.SIGSTOP)

            def is_stopped() -> bool:
                activity = read_activity(known)
                return activity is not None and activity.stopped

            wait_until(is_stopped)
        finally:
            child.kill()
    assert read_activity(known) is None


def test_a_server_that_ended_after_the_last_discovery_does_not_count_as_starting(
    proc: FakeProc,
) -> None:
    proc.add(100, ("python", "-m", "sglang.launch_server", "--port", "31000"))
    run = RunConfig.model_validate(
        {
            "name": "grpo",
            "workers": [{"name": "server", "match": {"command": "sglang.launch_server"}}],
            "inference": [{"name": "a", "worker": "server"}],
        }
    )
    discovery = ServerDiscovery([run], root=proc.root)
    (target,) = discovery.result(wait_seconds=30).targets
    alive = discovery.process(target)
    assert alive is not None
    assert alive.started is not None
    proc.remove(100)
    try:
        assert discovery.process(target) == ProcessInfo()
        assert discovery.activity(target) is None
    finally:
        discovery.close()
