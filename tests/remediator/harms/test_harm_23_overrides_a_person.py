"""Harm 23: a person has it in hand, and is overridden."""

from __future__ import annotations

from typing import Any

import pytest
from tests.remediator.conftest import (
    GIB,
    LATER,
    NOW,
    ROLLOUT,
    TRAINER,
    Scene,
    make_worker,
)

from trainwarden_remediator.alertmanager import AlertState, Matcher, Silence


def silence(scene: Scene) -> str:
    scene.eyes.known[LATER] = AlertState.SILENCED
    scene.eyes.silences = (Silence((Matcher("worker", "trainer"),)),)
    return "silenced"


def hold(scene: Scene) -> str:
    (scene.folder / "hold").touch()
    return "held"


def restart_by_hand(scene: Scene) -> str:
    scene.eyes.workers[TRAINER] = make_worker(started_at=scene.clock.now())
    return "already_restarted"


@pytest.mark.parametrize("way", [silence, hold, restart_by_hand])
async def test_what_a_person_does_while_it_waits_its_turn_is_heeded(stage: Any, way: Any) -> None:
    def slow(scene: Scene) -> None:
        scene.action.heal = {"resident_bytes": 9 * GIB}

    async with stage(before=slow) as scene:
        scene.hear(starts_at=NOW - 20)
        scene.hear(starts_at=NOW - 20, worker="trainer", fingerprint=LATER)
        await scene.clock.advance(10)
        assert "busy" in scene.told()
        reason = way(scene)
        scene.eyes.workers[ROLLOUT] = make_worker(started_at=scene.clock.now(), resident_bytes=GIB)
        await scene.clock.advance(100)
        assert "healed" in scene.told()
        assert reason in scene.told()
        assert scene.actions[TRAINER].restarts == []
