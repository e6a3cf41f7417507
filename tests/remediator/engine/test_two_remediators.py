"""Two remediators with different journals on one host."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.remediator.samples import make_worker
from tests.remediator.stage import Scene, Stage

from trainwarden_remediator.runtime import host_lock
from trainwarden_remediator.runtime.host_lock import host_locks


def worker_lock(scene: Scene) -> str:
    return f"{scene.setup.config.exporter.config.resolve()}\0demo\0rollout-0"


def instance_lock(scene: Scene) -> str:
    return f"instance\0{scene.action.identity}"


@pytest.mark.parametrize("lock_name", [worker_lock, instance_lock])
async def test_no_action_starts_while_another_remediator_acts_on_the_target(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    lock_name: Callable[[Scene], str],
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(host_lock, "WAIT_SECONDS", 0.01)
    async with stage() as scene:
        with host_locks(lock_name(scene)):
            scene.hear()
            await scene.clock.advance(10)
            assert scene.action.restarts == []
            assert "interrupted" in scene.journaled()
        assert "action deferred" in caplog.messages
        assert not [record for record in caplog.records if record.levelname == "ERROR"]
        await scene.pass_time(120)
        assert len(scene.action.restarts) == 1
        assert "healed" in scene.journaled()


async def test_an_action_on_another_target_is_not_refused(stage: Stage) -> None:
    async with stage() as scene:
        with host_locks(f"{worker_lock(scene)}-other", f"{instance_lock(scene)}-other"):
            scene.hear()
            await scene.clock.advance(10)
            assert len(scene.action.restarts) == 1


async def test_what_another_remediator_has_healed_meanwhile_is_not_acted_upon(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_lock, "WAIT_SECONDS", 0.01)
    async with stage() as scene:
        with host_locks(worker_lock(scene)):
            scene.hear()
            await scene.clock.advance(1)
            assert "interrupted" in scene.journaled()
            scene.observer.workers[scene.action.key] = make_worker(started_at=scene.clock.now())
        await scene.pass_time(60)
        assert scene.action.restarts == []
        assert "already_restarted" in scene.journaled()
