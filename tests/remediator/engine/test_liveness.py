"""A program whose work stands still must not look healthy to its supervisor."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.remediator.api.test_webhook import running
from tests.remediator.live_host import Box

from trainwarden_remediator.engine.control_loop import ALIVE_SECONDS
from trainwarden_remediator.observation.model import ExporterState


async def test_an_engine_whose_turn_does_not_move_on_is_not_alive(stage: Any) -> None:
    async with stage() as scene:

        async def hang() -> ExporterState:
            await asyncio.Event().wait()
            raise AssertionError

        scene.observer.observe = hang
        scene.hear()
        await scene.clock.advance(ALIVE_SECONDS - 5)
        assert scene.engine.is_alive()
        await scene.clock.advance(10)
        assert not scene.engine.is_alive()


async def test_an_idle_engine_is_alive(stage: Any) -> None:
    async with stage() as scene:
        await scene.clock.advance(10 * ALIVE_SECONDS)
        assert scene.engine.is_alive()


async def test_it_is_healthy_only_while_its_work_goes_on(box: Box) -> None:
    async with running(box) as (client, remediator):
        assert (await client.get("/-/healthy")).status == 200
        remediator.control_loop._last_alive_at -= ALIVE_SECONDS
        assert (await client.get("/-/healthy")).status == 503
        remediator.control_loop._last_alive_at += ALIVE_SECONDS
        remediator.failsafe._last_alive_at -= ALIVE_SECONDS
        assert (await client.get("/-/healthy")).status == 503
