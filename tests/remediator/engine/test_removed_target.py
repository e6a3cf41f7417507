"""A target is removed from the file while an action on it is interrupted."""

from __future__ import annotations

import pytest
from tests.remediator.samples import NOW, ROLLOUT, make_alert, make_setup
from tests.remediator.stage import Scene, Stage


@pytest.mark.parametrize("step", ["stop", None])
async def test_the_on_call_is_notified_if_the_worker_may_be_down(
    stage: Stage, step: str | None
) -> None:
    def leave(scene: Scene) -> None:
        scene.journal.record_alerts([make_alert(starts_at=NOW - 20)])
        action = scene.journal.record_intent(1, ROLLOUT, "restart", ())
        if step:
            scene.journal.record_step(action, step, processes=[4242])
        scene.context.setup = make_setup(scene.folder, "second/trainer")

    async with stage(before=leave) as scene:
        await scene.clock.advance(10)
        pages = [one for one in scene.journal.newest_events(99) if one.kind == "paged"]
        assert [(one.run, one.worker) for one in pages] == [ROLLOUT] * (step is not None)
        assert all("no longer a configured target" in one.facts["detail"] for one in pages)
        assert scene.action.restarts == scene.action.finishes == []
