"""The alert of a run that hangs comes and goes with the proof of the hang; its incident stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.samples import FINGERPRINT, NOW, TRAINER, make_alert
from tests.remediator.stage import Scene, Stage

from trainwarden_exporter.processes.announcements import (
    AnnouncedRuns,
    AnnouncedWorker,
    Announcement,
)
from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.observation.model import RunState

HANGS = RunState(
    step=30, last_step_at=NOW - 400, progress_at=NOW - 400, stall_limit=120, phase="training"
)


def announced_without_checkpoints(scene: Scene) -> None:
    """The run was started by `trainwarden run`, without `--checkpoints`."""
    one = Announcement(run="demo", worker="trainer", pid=7)
    runs = AnnouncedRuns({one.key: AnnouncedWorker(one, Path("/runs.d/a.json"), 0)})
    scene.engine.reconfigure(replace(scene.setup, announced=runs), scene.observer)


async def flap(scene: Scene, *, firing: bool) -> None:
    """Alertmanager ceases to list an alert some cycles before it says that the alert has ended."""
    scene.observer.known = {FINGERPRINT: AlertState.ACTIVE} if firing else {}
    await scene.clock.advance(0 if firing else 10)
    stall: dict[str, Any] = {"alertname": "TrainingStepStalled", "worker": ""}
    starts = scene.clock.now() if firing else scene.journal.open_incidents()[0].starts_at
    stall |= {"remediation": "restart_stalled_run", "starts_at": starts}
    scene.journal.record_alerts([make_alert(firing=firing, **stall)])
    scene.engine.wake()
    await scene.clock.advance(40)


@pytest.mark.parametrize("announced", [True, False])
async def test_the_incident_of_a_hang_lasts_until_the_run_moves(
    stage: Stage, *, announced: bool
) -> None:
    async with stage() as scene:
        scene.observer.runs["demo"] = HANGS
        if announced:
            announced_without_checkpoints(scene)
        for _ in range(3):
            await flap(scene, firing=True)
            await flap(scene, firing=False)
        (incident,) = scene.journal.open_incidents()
        assert (incident.fingerprint, incident.is_over) == (FINGERPRINT, False)
        assert "resolved" not in [e.facts.get("reason") for e in scene.journal.newest_events(99)]
        if announced:  # one call, though its alert fired three times
            assert incident.last_decision == "refuse no_checkpoint"
            assert scene.journaled().count("no_checkpoint") == 1
            assert scene.journal.given_up(0.0)
        now = scene.clock.now()
        scene.observer.runs["demo"] = replace(HANGS, step=31, last_step_at=now, progress_at=now)
        await scene.clock.advance(5)
        assert scene.journal.open_incidents() == ()
        assert not scene.journal.given_up(0.0)


async def test_a_run_that_hangs_again_at_its_step_is_one_outage(stage: Stage) -> None:
    saved = replace(HANGS, checkpoint=20, checkpoints=1, proved_step=20, recovery_matches=True)
    hangs = replace(saved, interruption_start=NOW - 400, usual_step_seconds=1)
    async with stage() as scene:
        scene.observer.runs["demo"] = hangs
        await flap(scene, firing=True)
        assert scene.actions[TRAINER].restarts == [1]
        now = scene.clock.now()
        repeats = replace(hangs, step=25, last_step_at=now, progress_at=now)
        scene.observer.runs["demo"] = repeats
        await flap(scene, firing=False)
        await scene.clock.advance(1500)
        assert scene.journaled().count("not_healed") == 1
        assert scene.journal.open_incidents() == ()
        await flap(scene, firing=True)
        assert scene.actions[TRAINER].restarts == [1, 2]
        (incident,) = scene.journal.open_incidents()
        assert (incident.id, incident.outage) == (2, 1)
