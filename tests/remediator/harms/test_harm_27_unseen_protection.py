"""Harm 27: a protection blocks everything, and nobody sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.remediator.policy.test_mass_failure import GONE
from tests.remediator.samples import NOW, ROLLOUT
from tests.remediator.stage import Scene

from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.observation.model import DiskState
from trainwarden_remediator.telemetry.metrics import BLOCKED_SINCE, breaker_samples
from trainwarden_remediator.telemetry.state import BreakerFigures

HALF_AN_HOUR = 1800


def no_exporter(scene: Scene) -> None:
    scene.observer.blind = ObservationError("connection refused")


def no_alertmanager(scene: Scene) -> None:
    scene.observer.deaf = ObservationError("connection refused")


def forgotten_hold(scene: Scene) -> None:
    (scene.folder / "hold").touch()


def nothing_shown(scene: Scene) -> None:
    del scene.observer.workers[ROLLOUT]


def full_disk(scene: Scene) -> None:
    scene.observer.disks = (DiskState("/", size=1e12, free=0),)


def all_down(scene: Scene) -> None:
    scene.observer.workers = dict.fromkeys(scene.observer.workers, replace(GONE))


WAYS: dict[Callable[[Scene], None], tuple[str, dict[str, Any]]] = {
    no_exporter: ("observation_failed", {}),
    no_alertmanager: ("observation_failed", {}),
    forgotten_hold: ("held", {}),
    nothing_shown: ("observation_failed", {}),
    full_disk: ("disk_unusable", {}),
    all_down: ("mass_failure", {"mass_failure_hold": "6h"}),
}


@pytest.mark.parametrize("way", WAYS)
async def test_each_guard_that_lets_nothing_through_is_counted_and_shown(
    stage: Any, way: Callable[[Scene], None]
) -> None:
    reason, settings = WAYS[way]
    labels = {"remediation": "start_missing_worker"} if way is all_down else {}
    async with stage(before=way, **settings) as scene:
        scene.hear(starts_at=NOW - 20, **labels)
        await scene.pass_time(HALF_AN_HOUR, **labels)
        assert all(action.restarts == [] for action in scene.actions.values())
        assert ("wait", reason) in scene.journal.counters()["decisions"]
        assert reason in scene.journaled()
        # what TrainingRemediationBlocked is made of
        blocked = scene.journal.blocked_since()
        assert blocked == {reason: NOW}
        shown = breaker_samples(BreakerFigures(False, 0, 1, blocked))
        assert (BLOCKED_SINCE, (reason,), NOW) in shown
