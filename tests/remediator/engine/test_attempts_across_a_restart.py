"""A run that crashes again and again has no more attempts because the remediator was restarted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import NOW, TRAINER, announced, make_worker
from tests.remediator.stage import Scene, Stage

from trainwarden_exporter.processes.announcements import AnnouncedRuns
from trainwarden_remediator.observation.model import RunState

GONE = make_worker(processes=0, started_at=None, memory_bytes=0.0)
LAST_STEP, SEEN_STEP = 40.0, 12.0


def announced_at(started_at: float) -> Any:
    def before(scene: Scene) -> None:
        known = AnnouncedRuns(announced(announced_at=started_at))
        scene.context.setup = replace(scene.setup, announced=known)

    return before


async def crashes(scene: Scene, step: float) -> None:
    """The run has crashed; if its trainer is restarted, it crashes once more."""
    action = scene.actions[TRAINER]
    before = len(action.restarts)
    scene.observer.runs["demo"] = RunState(step=step)
    scene.observer.workers[TRAINER] = GONE
    alert = {"alertname": "TrainingWorkerGone", "worker": "trainer", "starts_at": NOW - 20}
    scene.hear(**alert, remediation="start_missing_worker")
    for _ in range(60):
        if len(action.restarts) > before:
            break
        await scene.clock.advance(2)
    scene.observer.workers[TRAINER] = GONE
    await scene.clock.advance(8)


@pytest.mark.parametrize("seen", [SEEN_STEP, LAST_STEP])
async def test_the_attempts_before_a_restart_of_the_remediator_count_whatever_step_is_seen(
    stage: Stage, clock: FakeClock, seen: float
) -> None:
    """After `down` and `up`, the exporter may show the step at the `down`."""
    settings: Any = {"before": announced_at(clock.now() - 500), "cooldown": 20, "attempts": 3}
    async with stage(**settings) as scene:
        await crashes(scene, LAST_STEP)
        assert len(scene.actions[TRAINER].restarts) == 1
    async with stage(**settings) as scene:
        for step in (seen, LAST_STEP, LAST_STEP, LAST_STEP):
            await crashes(scene, step)
        assert len(scene.actions[TRAINER].restarts) == 2
        assert scene.journaled()[-1] == "attempts_exhausted"
