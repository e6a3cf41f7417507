"""Harm 26: what is heard while an action is under way is never looked at again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.remediator.conftest import GIB, NOW, ROLLOUT, Scene


async def test_an_alert_that_begins_anew_during_an_action_is_decided_when_that_ends(
    stage: Any,
) -> None:
    def in_vain(scene: Scene) -> None:
        scene.action.heal = {"resident_bytes": 9 * GIB}

    async with stage(before=in_vain, cooldown=30, attempts=9) as scene:
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(10)
        assert len(scene.journal.unfinished()) == 1
        scene.hear(starts_at=NOW + 5)
        await scene.clock.advance(20)
        assert scene.told().count("busy") == 1
        scene.action.heal = {"resident_bytes": GIB}
        # the first alert is over meanwhile
        scene.hear(starts_at=NOW - 20, firing=False)
        worker = scene.eyes.workers[ROLLOUT]
        scene.eyes.workers[ROLLOUT] = replace(worker, started_at=NOW - 3600)
        for _ in range(5):
            await scene.clock.advance(60)
            scene.hear(starts_at=NOW + 5)
        incidents = {e.incident for e in scene.journal.newest_events(1000) if e.kind == "intent"}
        assert len(incidents) == 2
        assert scene.told().count("healed") == 1
