"""A run that fills its disk again is restarted once an operator has made room again."""

from __future__ import annotations

from dataclasses import replace

from tests.remediator.policy.test_full_disk import FULL, WITH_ROOM
from tests.remediator.samples import NOW, TRAINER, make_worker
from tests.remediator.stage import Scene, Stage

from trainwarden_remediator.observation.model import DiskState, RunState

GONE = make_worker(processes=0, started_at=None, memory_bytes=0, last_exit_code=1)


def shows(scene: Scene, disk: DiskState) -> None:
    scene.observer.disks = (replace(disk, seen_at=scene.clock.now()),)


def ends_without_space(scene: Scene, disk: DiskState) -> None:
    now = scene.clock.now()
    shows(scene, disk)
    scene.observer.runs["demo"] = RunState(disk_full_at=now - 6)
    scene.observer.workers[TRAINER] = replace(GONE, last_exit_at=now - 5)


async def restarted_once(scene: Scene) -> None:
    ends_without_space(scene, WITH_ROOM)
    alert = {"alertname": "TrainingWorkerGone", "worker": "trainer"}
    scene.hear(**alert, remediation="start_missing_worker", starts_at=NOW - 20)
    await scene.clock.advance(4)
    assert scene.actions[TRAINER].restarts == [1]
    await scene.clock.advance(150)


async def test_a_disk_that_is_full_a_second_time_and_is_mended_holds_nothing(stage: Stage) -> None:
    async with stage(cooldown=60) as scene:
        await restarted_once(scene)
        ends_without_space(scene, FULL)
        await scene.clock.advance(10)
        shows(scene, WITH_ROOM)
        (scene.folder / "hold").touch()  # while the operator deletes files
        await scene.clock.advance(10)
        (scene.folder / "hold").unlink()
        await scene.clock.advance(10)
        assert len(scene.actions[TRAINER].restarts) == 2


async def test_a_second_end_on_a_disk_that_is_not_watched_holds_the_run(stage: Stage) -> None:
    async with stage(cooldown=60) as scene:
        await restarted_once(scene)
        ends_without_space(scene, WITH_ROOM)
        await scene.clock.advance(20)
        assert scene.actions[TRAINER].restarts == [1]
        assert scene.journaled()[-1] == "disk_unusable"
