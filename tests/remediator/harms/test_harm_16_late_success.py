"""Harm 16: an action that was thought to have failed, and had only been slow, is done again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.remediator.conftest import GIB, NOW, ROLLOUT, Scene


async def test_one_that_helps_after_its_time_is_up_is_not_done_again(stage: Any) -> None:
    def slow(scene: Scene) -> None:
        scene.action.heal = {}

    async with stage(before=slow) as scene:
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(100)
        assert "not_healed" in scene.told()
        # it has helped after all, while the cooldown is waited for
        worker = scene.eyes.workers[ROLLOUT]
        scene.eyes.workers[ROLLOUT] = replace(worker, resident_bytes=GIB)
        await scene.pass_time(3600)
        assert scene.action.restarts == [1]
        assert "gave_up" not in str(scene.journal.tallies())
