"""Harm 11: it crashes more slowly than the limiter counts, for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.remediator.conftest import ROLLOUT, FakeAction, Scene, make_worker

from trainwarden_remediator.sight import RunSight

HOUR = 3600
DAY = 24 * HOUR
PERIOD = 31


class CrashesSoon(FakeAction):
    """Each start is well for half a minute."""

    started_at = float("-inf")

    def _start(self, mark: str, announce: Any) -> Any:
        self.started_at = self.clock.now()
        return super()._start(mark, announce)

    def crash_if_due(self) -> None:
        if self.clock.now() - self.started_at >= PERIOD:
            worker = self.eyes.workers[self.key]
            self.eyes.workers[self.key] = replace(worker, processes=0, started_at=None)


def gave_up(scene: Scene) -> bool:
    outcomes = scene.journal.tallies().get("outcomes", {})
    return any(labels[-1] == "gave_up" for labels in outcomes)


async def test_one_that_crashes_every_31_seconds_is_given_up_within_the_hour_and_stays_so(
    stage: Any,
) -> None:
    def loops(scene: Scene) -> None:
        scene.action.__class__ = CrashesSoon
        scene.eyes.workers[ROLLOUT] = make_worker(processes=0)
        scene.eyes.runs = {"demo": RunSight(step=57.0, checkpoint=50.0)}

    async with stage(before=loops) as scene:
        began = scene.clock.now()
        # its alert ends whenever it runs for a moment, and begins anew with each crash
        while not gave_up(scene):
            assert scene.clock.now() - began < HOUR
            scene.action.crash_if_due()
            if scene.eyes.workers[ROLLOUT].processes == 0:
                scene.hear(remediation="start_missing_worker", starts_at=scene.clock.now() - 20)
            await scene.clock.advance(PERIOD)
        # and for the rest of the day it stays down and its alert stands
        scene.action.crash_if_due()
        starts = scene.clock.now()
        while scene.clock.now() - began < DAY:
            scene.hear(remediation="start_missing_worker", starts_at=starts)
            await scene.clock.advance(10)
            scene.clock.pass_by(HOUR / 4)
        assert len(scene.action.restarts) <= 3
