"""Harm 11: it crashes more slowly than the limiter counts, for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.remediator.fakes import FakeAction
from tests.remediator.samples import ROLLOUT, make_worker
from tests.remediator.stage import Scene

from trainwarden_remediator.observation.model import RunState

HOUR = 3600
DAY = 24 * HOUR
PERIOD = 31


class CrashesSoon(FakeAction):
    """Each start is well for half a minute."""

    started_at = float("-inf")

    def _start(self, mark: str, record_step: Any) -> Any:
        self.started_at = self.clock.now()
        return super()._start(mark, record_step)

    def crash_if_due(self) -> None:
        if self.clock.now() - self.started_at >= PERIOD:
            worker = self.observer.workers[self.key]
            self.observer.workers[self.key] = replace(worker, processes=0, started_at=None)


def gave_up(scene: Scene) -> bool:
    outcomes = scene.journal.counters().get("outcomes", {})
    return any(labels[-1] == "gave_up" for labels in outcomes)


async def test_a_worker_that_crashes_every_31_seconds_is_given_up_within_the_hour_and_stays_so(
    stage: Any,
) -> None:
    def loops(scene: Scene) -> None:
        scene.action.__class__ = CrashesSoon
        scene.observer.workers[ROLLOUT] = make_worker(processes=0)
        scene.observer.runs = {"demo": RunState(step=57.0, checkpoint=50.0)}

    async with stage(before=loops) as scene:
        began = scene.clock.now()
        # its alert ends whenever it runs for a moment, and begins again with each crash
        while not gave_up(scene):
            assert scene.clock.now() - began < HOUR
            scene.action.crash_if_due()
            if scene.observer.workers[ROLLOUT].processes == 0:
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
