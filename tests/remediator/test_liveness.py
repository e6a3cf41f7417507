"""A program whose work stands still must not look well to whoever would start it anew."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.remediator.conftest import Box
from tests.remediator.test_webhook import running

from trainwarden_remediator.engine import ALIVE_SECONDS
from trainwarden_remediator.sight import Sight


async def test_an_engine_whose_turn_does_not_move_on_is_not_alive(stage: Any) -> None:
    async with stage() as scene:

        async def hang() -> Sight:
            await asyncio.Event().wait()
            raise AssertionError

        scene.eyes.look = hang
        scene.hear()
        await scene.clock.advance(ALIVE_SECONDS - 5)
        assert scene.engine.is_alive()
        await scene.clock.advance(10)
        assert not scene.engine.is_alive()


async def test_one_that_has_nothing_to_do_is_alive(stage: Any) -> None:
    async with stage() as scene:
        await scene.clock.advance(10 * ALIVE_SECONDS)
        assert scene.engine.is_alive()


async def test_it_is_healthy_only_while_its_work_goes_on(box: Box) -> None:
    async with running(box) as (client, remediator):
        assert (await client.get("/-/healthy")).status == 200
        remediator.engine._moved_at -= ALIVE_SECONDS
        assert (await client.get("/-/healthy")).status == 503
        remediator.engine._moved_at += ALIVE_SECONDS
        remediator.brake._moved_at -= ALIVE_SECONDS
        assert (await client.get("/-/healthy")).status == 503
