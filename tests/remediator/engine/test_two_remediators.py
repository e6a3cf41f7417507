"""Two remediators with different journals on one host."""

from __future__ import annotations

import pytest
from tests.remediator.stage import Scene, Stage

from trainwarden_remediator.runtime import host_lock
from trainwarden_remediator.runtime.host_lock import host_locks


def lock_name(scene: Scene) -> str:
    return f"{scene.setup.config.exporter.config.resolve()}\0demo\0rollout-0"


async def test_no_action_starts_while_another_remediator_acts_on_the_target(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_lock, "WAIT_SECONDS", 0.01)
    async with stage() as scene:
        with host_locks(lock_name(scene)):
            scene.hear()
            await scene.clock.advance(10)
            assert scene.action.restarts == []
            assert "interrupted" in scene.journaled()
        await scene.pass_time(120)
        assert len(scene.action.restarts) == 1
        assert "healed" in scene.journaled()


async def test_an_action_on_another_target_is_not_refused(stage: Stage) -> None:
    async with stage() as scene:
        with host_locks(f"{lock_name(scene)}-other"):
            scene.hear()
            await scene.clock.advance(10)
            assert len(scene.action.restarts) == 1
