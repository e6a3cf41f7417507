"""Harm 9: the watching itself is broken, and everything looks dead."""

from __future__ import annotations

from typing import Any

import pytest
from tests.remediator.policy.test_mass_failure import GONE, hear_of_all
from tests.remediator.samples import OTHER, ROLLOUT, TRAINER, make_worker
from tests.remediator.stage import Scene

from trainwarden_remediator.exceptions import ObservationError


def restarts(scene: Scene) -> int:
    return sum(len(action.restarts) for action in scene.actions.values())


@pytest.mark.parametrize("way", ["exporter", "alertmanager", "all gone"])
async def test_without_observations_no_worker_is_restarted_and_then_one_at_a_time(
    stage: Any, way: str
) -> None:
    async with stage() as scene:
        keys = (ROLLOUT, TRAINER, OTHER)
        if way == "exporter":
            scene.observer.blind = ObservationError("no route to host")
        elif way == "alertmanager":
            scene.observer.deaf = ObservationError("no route to host")
        scene.observer.workers = dict.fromkeys(keys, GONE)
        hear_of_all(scene)
        await scene.clock.advance(45)
        assert restarts(scene) == 0
        # the network is back, and one of them was gone indeed
        scene.observer.blind = scene.observer.deaf = None
        scene.observer.workers = {key: make_worker() for key in keys} | {ROLLOUT: GONE}
        await scene.clock.advance(30)
        assert [len(scene.actions[key].restarts) for key in keys] == [1, 0, 0]
