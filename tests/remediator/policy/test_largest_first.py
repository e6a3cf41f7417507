from __future__ import annotations

from typing import Any

import pytest
from tests.remediator.samples import GIB, LATER, NOW, OTHER, ROLLOUT, TRAINER, make_worker
from tests.remediator.stage import Scene

BOTH = {"remediation": "restart_leaking_worker"}


def two_leak(scene: Scene) -> None:
    scene.observer.workers[TRAINER] = make_worker(memory_bytes=12 * GIB)


def order(scene: Scene) -> list[str]:
    return [e.worker for e in reversed(scene.journal.newest_events(1000)) if e.kind == "intent"]


def hear_both(scene: Scene) -> None:
    scene.hear()
    scene.hear(fingerprint=LATER, worker="trainer")


async def test_the_largest_is_restarted_first_and_never_both_at_once(stage: Any) -> None:
    async with stage(before=two_leak) as scene:
        running: list[str] = []
        for key, action in scene.actions.items():
            action.before = lambda key=key: running.append(key.worker)
        hear_both(scene)
        await scene.clock.settle()
        assert order(scene) == ["trainer"]
        await scene.clock.advance(60)
        assert order(scene) == running == ["trainer", "rollout-0"]


async def test_one_whose_alert_comes_a_little_later_is_waited_for(stage: Any) -> None:
    async with stage(before=two_leak) as scene:
        scene.hear()
        await scene.clock.advance(5)
        assert order(scene) == []
        scene.hear(fingerprint=LATER, worker="trainer")
        await scene.clock.advance(60)
        assert order(scene) == ["trainer", "rollout-0"]


async def test_one_whose_alert_never_comes_is_not_waited_for_long(stage: Any) -> None:
    async with stage(before=two_leak) as scene:
        scene.hear()
        await scene.clock.advance(18)
        assert order(scene) == []
        await scene.clock.advance(6)
        assert order(scene) == ["rollout-0"]


async def test_a_worker_that_cannot_have_its_turn_is_not_waited_for(stage: Any) -> None:
    async with stage(before=two_leak) as scene:
        # Silenced: nothing will be done about the larger one.
        del scene.observer.known[LATER]
        scene.hear(fingerprint=LATER, worker="trainer")
        await scene.clock.advance(3)
        scene.hear()
        await scene.clock.advance(3)
        assert order(scene) == ["rollout-0"]


@pytest.mark.parametrize("key", [OTHER, TRAINER])
async def test_of_another_run_or_within_its_limit_it_is_no_matter(stage: Any, key: Any) -> None:
    def larger(scene: Scene) -> None:
        for each in (OTHER, TRAINER):
            within = make_worker(memory_bytes=12 * GIB, memory_limit_bytes=20 * GIB)
            scene.observer.workers[each] = within
        if key == OTHER:
            scene.observer.workers[key] = make_worker(memory_bytes=12 * GIB)

    async with stage(before=larger) as scene:
        scene.hear(starts_at=NOW - 20)
        await scene.clock.settle()
        assert order(scene) == [ROLLOUT.worker]
