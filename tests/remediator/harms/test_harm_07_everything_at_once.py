"""Harm 7: a hundred alerts about one box restart all that is on it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.remediator.samples import OTHER, ROLLOUT, TRAINER, make_alert, make_worker
from tests.remediator.stage import Scene

from trainwarden_remediator.alertmanager.api import AlertState

RULES = ("restart_leaking_worker", "recycle_aged_worker", "relieve_memory", "start_missing_worker")
SETTINGS = {"breaker": {"actions": 4, "window": 3600}, "cooldown": 0, "attempts": 100}


def never_healed(scene: Scene) -> None:
    for key in (ROLLOUT, TRAINER, OTHER):
        scene.observer.workers[key] = make_worker(age_limit_seconds=60)
        scene.actions[key].heal = {}
    scene.observer.known = {f"{number:016x}": AlertState.ACTIVE for number in range(100)}


@pytest.mark.parametrize("posts", [1, 100])
async def test_a_hundred_alerts_of_four_rules_cost_no_more_than_the_budget(
    stage: Any, posts: int
) -> None:
    async with stage(before=never_healed, **SETTINGS) as scene:
        keys = (ROLLOUT, TRAINER, OTHER)
        alerts = [
            make_alert(
                fingerprint=f"{number:016x}",
                starts_at=scene.clock.now() - 60,
                run=keys[number % 3].run,
                worker=keys[number % 3].worker,
                remediation=RULES[number % 4],
            )
            for number in range(100)
        ]
        share = len(alerts) // posts
        for first in range(0, 100, share):
            scene.journal.record_alerts(alerts[first : first + share])
        for _ in range(8):
            await scene.clock.advance(40)
            scene.journal.record_alerts(alerts)
        assert sum(len(action.restarts) for action in scene.actions.values()) == 4
        assert scene.journal.breaker().opened_at is not None
        assert scene.journaled().count("breaker_opened") == 1
