"""Calls at the same time share one result."""

from __future__ import annotations

import asyncio

from trainwarden_exporter.webserver.shared_calls import SHARED_SECONDS, SharedCalls


async def test_calls_that_begin_at_the_same_time_share_one_result() -> None:
    now, calls, gate = 100.0, 0, asyncio.Event()
    shared = SharedCalls[int](lambda: now)

    async def work() -> int:
        nonlocal calls
        calls += 1
        await gate.wait()
        return 7

    def start(key: str) -> asyncio.Task[int]:
        return asyncio.create_task(shared.call(key, work))

    async def start_all() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    together = [start("all") for _ in range(50)]
    await start_all()
    together[0].cancel()
    assert calls == 1
    other = start("host")
    await start_all()
    assert calls == 2
    now += 2 * SHARED_SECONDS
    later = start("all")
    await start_all()
    assert calls == 3
    gate.set()
    assert await asyncio.gather(*together[1:], other, later) == [7] * 51
    assert await shared.call("all", work) == 7
    assert calls == 4
