"""Harm 16: an action that was thought to have failed, and had only been slow, is done again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.remediator.samples import GIB, NOW, ROLLOUT
from tests.remediator.stage import Scene


async def test_an_action_that_helps_late_is_not_repeated(stage: Any) -> None:
    def slow(scene: Scene) -> None:
        scene.action.heal = {}

    async with stage(before=slow) as scene:
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(100)
        assert "not_healed" in scene.journaled()
        # it has helped after all, while the cooldown is waited for
        worker = scene.observer.workers[ROLLOUT]
        scene.observer.workers[ROLLOUT] = replace(worker, memory_bytes=GIB)
        await scene.pass_time(3600)
        assert scene.action.restarts == [1]
        assert "gave_up" not in str(scene.journal.counters())
