"""Harm 18: one rank of a job is restarted, and the others wait for it for ever."""

from __future__ import annotations

from typing import Any

import pytest
from tests.remediator.fakes import FakeAction
from tests.remediator.samples import NOW, make_setup, make_worker
from tests.remediator.stage import Scene

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.config.schema import Setup

RANKS = [f"rank-{number}" for number in range(8)]


class Job(Scene):
    """Eight ranks that are one target."""

    def configured(self, **changes: Any) -> Setup:
        del changes
        target = {
            "run": "demo",
            "worker": "rank-0",
            "additional_workers": RANKS[1:],
            "process": {"start": ["/bin/true"], "grace": 1},
        }
        return make_setup(self.folder, *(f"demo/{rank}" for rank in RANKS), targets=[target])


async def test_alerts_about_three_of_eight_ranks_are_one_restart_of_the_job(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def eight(scene: Scene) -> None:
        keys = [WorkerKey("demo", rank) for rank in RANKS]
        scene.observer.workers = {key: make_worker() for key in keys}
        job = FakeAction(keys[0], scene.observer, scene.clock)
        scene.actions.clear()
        scene.actions[keys[0]] = job

    monkeypatch.setattr("tests.remediator.conftest.Scene", Job)
    async with stage(before=eight) as scene:
        for number, rank in enumerate(("rank-2", "rank-5", "rank-7")):
            fingerprint = f"{number:016x}"
            scene.observer.known[fingerprint] = AlertState.ACTIVE
            scene.hear(fingerprint=fingerprint, worker=rank, starts_at=NOW - 20)
        await scene.clock.advance(60)
        assert [action.restarts for action in scene.actions.values()] == [[1]]
