"""Harm 24: the breaker that stops harm also stops what would let it close again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.remediator.conftest import NOW, OTHER, FakeAction, FakeEyes
from tests.remediator.test_breaker import BUSY, open_it, restarts

from trainwarden_remediator.actions.base import Announce, Saving, never
from trainwarden_remediator.alertmanager import AlertState
from trainwarden_remediator.sight import Sight
from trainwarden_remediator.targets import GPUS

CLEAN = {"remediation": "clean_gpu", "run": "", "worker": "", "fingerprint": "c" * 16}


class Held(FakeEyes):
    """A box where something that belongs to no worker holds a GPU."""

    async def look(self) -> Sight:
        return replace(await super().look(), gpu_orphans=1)


class Cleaning(FakeAction):
    """Ends what holds the GPUs."""

    kind = "gpu_cleanup"

    def perform(
        self,
        mark: str,
        announce: Announce,
        meant: Any = None,
        saving: Saving = never,
    ) -> dict[str, Any]:
        self.restarts.append(1)
        self.eyes.__class__ = FakeEyes
        return {"killed": [], "ended": []}

    def illness(self, sight: Sight, began: float) -> str:
        return ""


async def test_with_it_open_leftovers_are_cleaned_alerts_end_and_a_person_resumes(
    stage: Any,
) -> None:
    async with stage(**BUSY, gpu_cleanup={}) as scene:
        clean = Cleaning(GPUS, scene.eyes, scene.clock)
        scene.actions[GPUS] = clean
        await open_it(scene)
        assert scene.journal.latched() is not None
        done = restarts(scene)

        scene.eyes.known["c" * 16] = AlertState.ACTIVE
        scene.eyes.__class__ = Held
        scene.hear(**CLEAN)
        await scene.clock.advance(10)
        assert clean.restarts == [1]
        assert restarts(scene) == done + 1

        scene.hear(fingerprint=f"{2:016x}", run=OTHER.run, worker=OTHER.worker, firing=False,
                   starts_at=NOW + 40)  # fmt: skip
        await scene.clock.advance(4)
        assert "resolved" in scene.told()

        assert scene.journal.reopen()
        scene.engine.wake()
        await scene.clock.advance(20)
        assert scene.journal.latched() is None
