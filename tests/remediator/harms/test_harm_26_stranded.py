"""Harm 26: an alert that arrives during an action is never evaluated again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.remediator.samples import GIB, NOW, ROLLOUT
from tests.remediator.stage import Scene


async def test_an_alert_that_begins_again_during_an_action_is_decided_when_that_ends(
    stage: Any,
) -> None:
    def without_effect(scene: Scene) -> None:
        scene.action.heal = {"memory_bytes": 9 * GIB}

    async with stage(before=without_effect, cooldown=30, attempts=9) as scene:
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(10)
        assert len(scene.journal.open_actions()) == 1
        scene.hear(starts_at=NOW + 5)
        await scene.clock.advance(20)
        assert scene.journaled().count("busy") == 1
        scene.action.heal = {"memory_bytes": GIB}
        # the first alert is over meanwhile
        scene.hear(starts_at=NOW - 20, firing=False)
        worker = scene.observer.workers[ROLLOUT]
        scene.observer.workers[ROLLOUT] = replace(worker, started_at=NOW - 3600)
        for _ in range(5):
            await scene.clock.advance(60)
            scene.hear(starts_at=NOW + 5)
        # of one outage: it began during the action
        events = scene.journal.newest_events(1000)
        assert [one.incident for one in events if one.kind == "intent"] == [1, 1]
        assert scene.journaled().count("healed") == 1
