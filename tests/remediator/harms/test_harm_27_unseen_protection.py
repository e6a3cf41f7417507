"""Harm 27: a protection blocks everything, and nobody sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.remediator.conftest import NOW, ROLLOUT, Scene, make_worker
from tests.remediator.test_widespread import GONE

from trainwarden_remediator.exceptions import UnknownError
from trainwarden_remediator.guards import Guards, families
from trainwarden_remediator.sight import DiskSight

HALF_AN_HOUR = 1800


def no_exporter(scene: Scene) -> None:
    scene.eyes.blind = UnknownError("connection refused")


def no_alertmanager(scene: Scene) -> None:
    scene.eyes.deaf = UnknownError("connection refused")


def forgotten_hold(scene: Scene) -> None:
    (scene.folder / "hold").touch()


def wrong_match(scene: Scene) -> None:
    scene.eyes.workers[ROLLOUT] = make_worker(processes=5)


def nothing_shown(scene: Scene) -> None:
    del scene.eyes.workers[ROLLOUT]


def full_disk(scene: Scene) -> None:
    scene.eyes.disks = (DiskSight("/", size=1e12, free=0),)


def all_down(scene: Scene) -> None:
    scene.eyes.workers = dict.fromkeys(scene.eyes.workers, replace(GONE))


WAYS: dict[Callable[[Scene], None], tuple[str, dict[str, Any]]] = {
    no_exporter: ("world_unknown", {}),
    no_alertmanager: ("world_unknown", {}),
    forgotten_hold: ("held", {}),
    wrong_match: ("ambiguous_target", {}),
    nothing_shown: ("world_unknown", {}),
    full_disk: ("disk_trouble", {}),
    all_down: ("widespread", {"widespread_patience": "6h"}),
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
        assert ("wait", reason) in scene.journal.tallies()["decisions"]
        assert reason in scene.told()
        # what TrainingRemediationBlocked is made of
        blocked = scene.journal.blocked_since()
        assert blocked == {reason: NOW}
        shown = families(Guards(False, 0, 1, blocked))
        samples = {s.labels.get("reason") for family in shown for s in family.samples}
        assert reason in samples
