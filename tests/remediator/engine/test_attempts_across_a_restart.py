"""A run that crashes again and again has no more attempts because the remediator was restarted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import NOW, TRAINER, announced, make_alert, make_worker
from tests.remediator.stage import Scene, Stage

from trainwarden_exporter.processes.announcements import AnnouncedRuns
from trainwarden_remediator.actions.base import ActionState
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.observation.model import RunState

GONE = make_worker(processes=0, started_at=None, memory_bytes=0.0)
LAST_STEP, SEEN_STEP = 40.0, 12.0


def as_announced(**content: Any) -> Any:
    def before(scene: Scene) -> None:
        known = AnnouncedRuns(announced(**content))
        scene.context.setup = replace(scene.setup, announced=known)
        scene.observer.workers[TRAINER] = GONE
        scene.actions[TRAINER].stands = ActionState.ENDED

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
    settings: Any = {
        "before": as_announced(announced_at=clock.now() - 500),
        "cooldown": 20,
        "attempts": 3,
    }
    async with stage(**settings) as scene:
        await crashes(scene, LAST_STEP)
        assert len(scene.actions[TRAINER].restarts) == 1
    async with stage(**settings) as scene:
        for step in (seen, LAST_STEP, LAST_STEP, LAST_STEP):
            await crashes(scene, step)
        assert len(scene.actions[TRAINER].restarts) == 2
        assert scene.journaled()[-1] == "attempts_exhausted"


@pytest.mark.parametrize("after", [1.0, -1.0])
async def test_what_was_started_and_has_crashed_since_is_not_started_again_for_one_attempt(
    stage: Stage, clock: FakeClock, journal: Journal, after: float
) -> None:
    """The remediator was killed between the start and its result."""
    alert: dict[str, Any] = {"alertname": "TrainingWorkerGone", "worker": "trainer"}
    journal.record_alerts([make_alert(**alert, remediation="start_missing_worker")])
    number = journal.record_intent(1, TRAINER, "restart", ())
    journal.record_step(number, "start", command=["python"])
    own = as_announced(announced_at=NOW - 500, state="failed", started_at=clock.now() + after)
    clock.pass_by(20)
    async with stage(before=own) as scene:
        await clock.advance(6)
        started = after > 0
        assert scene.actions[TRAINER].finishes == ([] if started else [number])
        assert ("not_healed" in scene.journaled()) == started
