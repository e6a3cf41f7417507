"""Harm 9: the watching itself is broken, and everything looks dead."""

from __future__ import annotations

from typing import Any

import pytest
from tests.remediator.conftest import OTHER, ROLLOUT, TRAINER, Scene, make_worker
from tests.remediator.test_widespread import GONE, hear_of_all

from trainwarden_remediator.exceptions import UnknownError


def restarts(scene: Scene) -> int:
    return sum(len(action.restarts) for action in scene.actions.values())


@pytest.mark.parametrize("way", ["exporter", "alertmanager", "all gone"])
async def test_while_nothing_can_be_seen_nothing_is_restarted_and_then_one_at_a_time(
    stage: Any, way: str
) -> None:
    async with stage() as scene:
        keys = (ROLLOUT, TRAINER, OTHER)
        if way == "exporter":
            scene.eyes.blind = UnknownError("no route to host")
        elif way == "alertmanager":
            scene.eyes.deaf = UnknownError("no route to host")
        scene.eyes.workers = dict.fromkeys(keys, GONE)
        hear_of_all(scene)
        await scene.clock.advance(45)
        assert restarts(scene) == 0
        # the network is back, and one of them was gone indeed
        scene.eyes.blind = scene.eyes.deaf = None
        scene.eyes.workers = {key: make_worker() for key in keys} | {ROLLOUT: GONE}
        await scene.clock.advance(30)
        assert [len(scene.actions[key].restarts) for key in keys] == [1, 0, 0]
