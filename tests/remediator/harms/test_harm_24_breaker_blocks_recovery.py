"""Harm 24: the breaker that stops harm also stops what would let it close again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.remediator.fakes import FakeAction, FakeObserver
from tests.remediator.policy.test_breaker import BUSY, open_it, restarts
from tests.remediator.samples import NOW, OTHER

from trainwarden_remediator.actions.base import (
    Confirm,
    IsSaving,
    RecordStep,
    confirm_always,
    never_saving,
)
from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.config.targets import GPUS
from trainwarden_remediator.observation.model import ExporterState

CLEAN = {"remediation": "clean_gpu", "run": "", "worker": "", "fingerprint": "c" * 16}


class Held(FakeObserver):
    """A box where something that belongs to no worker holds a GPU."""

    async def observe(self) -> ExporterState:
        return replace(await super().observe(), gpu_orphans=1)


class Cleaning(FakeAction):
    """Ends what holds the GPUs."""

    kind = "gpu_cleanup"

    def perform(
        self,
        mark: str,
        record_step: RecordStep,
        intended: Any = None,
        saving: IsSaving = never_saving,
        confirm: Confirm = confirm_always,
    ) -> dict[str, Any]:
        self.restarts.append(1)
        self.observer.__class__ = FakeObserver
        return {"killed": [], "ended": []}

    def health_problem(self, exporter: ExporterState, began: float) -> str:
        return ""


async def test_with_it_open_leftovers_are_cleaned_alerts_end_and_an_operator_resumes(
    stage: Any,
) -> None:
    async with stage(**BUSY, gpu_cleanup={}) as scene:
        clean = Cleaning(GPUS, scene.observer, scene.clock)
        scene.actions[GPUS] = clean
        await open_it(scene)
        assert scene.journal.breaker().opened_at is not None
        done = restarts(scene)

        scene.observer.known["c" * 16] = AlertState.ACTIVE
        scene.observer.__class__ = Held
        scene.hear(**CLEAN)
        await scene.clock.advance(10)
        assert clean.restarts == [1]
        assert restarts(scene) == done + 1

        scene.hear(fingerprint=f"{2:016x}", run=OTHER.run, worker=OTHER.worker, firing=False,
                   starts_at=NOW + 40)  # fmt: skip
        await scene.clock.advance(4)
        assert "resolved" in scene.journaled()

        assert scene.close_breaker()
        scene.engine.wake()
        await scene.clock.advance(20)
        assert scene.journal.breaker().opened_at is None
