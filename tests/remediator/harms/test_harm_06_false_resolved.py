"""Harm 6: Prometheus has died, so Alertmanager says `resolved`, and that is believed."""

from __future__ import annotations

from typing import Any

from tests.remediator.samples import GIB, NOW, ROLLOUT
from tests.remediator.stage import Scene


async def test_a_resolved_that_comes_while_it_is_verified_heals_nothing(stage: Any) -> None:
    def without_effect(scene: Scene) -> None:
        scene.action.heal = {"memory_bytes": 9 * GIB}

    async with stage(before=without_effect, cooldown=60, attempts=3) as scene:
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(5)
        assert scene.action.restarts == [1]
        # its end as Prometheus had foretold it: nobody looked
        scene.hear(starts_at=NOW - 20, firing=False)
        await scene.clock.advance(120)
        assert "not_healed" in scene.journaled()
        assert "healed" not in scene.journaled()
        # Prometheus is back, and so is the alert: the same one, with what was tried so far
        scene.hear(starts_at=NOW - 20)
        await scene.pass_time(600)
        assert {event.incident for event in scene.journal.newest_events(999)} <= {1, None}
        assert scene.journal.counters()["outcomes"][(*ROLLOUT, "not_healed")] >= 2
        assert len(scene.action.restarts) <= 3
