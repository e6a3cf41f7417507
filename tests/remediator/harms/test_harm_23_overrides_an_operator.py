"""Harm 23: an operator works on it, and is overridden."""

from __future__ import annotations

from typing import Any

import pytest
from tests.remediator.samples import GIB, LATER, NOW, ROLLOUT, TRAINER, make_worker
from tests.remediator.stage import Scene

from trainwarden_remediator.alertmanager.api import AlertState, Silence, SilenceMatcher


def silence(scene: Scene) -> str:
    scene.observer.known[LATER] = AlertState.SILENCED
    scene.observer.silences = (Silence((SilenceMatcher("worker", "trainer"),)),)
    return "silenced"


def hold(scene: Scene) -> str:
    (scene.folder / "hold").touch()
    return "held"


def restart_by_hand(scene: Scene) -> str:
    scene.observer.workers[TRAINER] = make_worker(started_at=scene.clock.now())
    return "already_restarted"


@pytest.mark.parametrize("way", [silence, hold, restart_by_hand])
async def test_what_an_operator_does_while_it_waits_its_turn_is_heeded(
    stage: Any, way: Any
) -> None:
    def slow(scene: Scene) -> None:
        scene.action.heal = {"resident_bytes": 9 * GIB}

    async with stage(before=slow) as scene:
        scene.hear(starts_at=NOW - 20)
        scene.hear(starts_at=NOW - 20, worker="trainer", fingerprint=LATER)
        await scene.clock.advance(10)
        assert "busy" in scene.journaled()
        reason = way(scene)
        scene.observer.workers[ROLLOUT] = make_worker(
            started_at=scene.clock.now(), resident_bytes=GIB
        )
        await scene.clock.advance(100)
        assert "healed" in scene.journaled()
        assert reason in scene.journaled()
        assert scene.actions[TRAINER].restarts == []
