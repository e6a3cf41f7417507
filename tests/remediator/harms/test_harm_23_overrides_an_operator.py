"""Harm 23: an operator works on it, and is overridden."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.remediator.process_yard import SLEEP, Yard, alive
from tests.remediator.samples import GIB, LATER, NOW, ROLLOUT, TRAINER, make_worker
from tests.remediator.stage import Scene, Stage

from trainwarden_remediator.alertmanager.api import AlertState, Silence, SilenceMatcher
from trainwarden_remediator.observation.model import RunState


def silence(scene: Scene) -> str:
    scene.observer.known[LATER] = AlertState.SILENCED
    scene.observer.silences = (Silence((SilenceMatcher("worker", "trainer"),)),)
    return "silenced"


def hold(scene: Scene) -> str:
    (scene.folder / "hold").touch()
    return "held"


def restart_by_hand(scene: Scene) -> str:
    scene.observer.workers[TRAINER] = make_worker(started_at=scene.clock.now())
    return "already_restarted"


@pytest.mark.parametrize("way", [silence, hold, restart_by_hand])
async def test_what_an_operator_does_while_it_waits_its_turn_is_heeded(
    stage: Any, way: Any
) -> None:
    def slow(scene: Scene) -> None:
        scene.action.heal = {"memory_bytes": 9 * GIB}

    async with stage(before=slow) as scene:
        scene.hear(starts_at=NOW - 20)
        scene.hear(starts_at=NOW - 20, worker="trainer", fingerprint=LATER)
        await scene.clock.advance(10)
        assert "busy" in scene.journaled()
        reason = way(scene)
        scene.observer.workers[ROLLOUT] = make_worker(
            started_at=scene.clock.now(), memory_bytes=GIB
        )
        await scene.clock.advance(100)
        assert "healed" in scene.journaled()
        assert reason in scene.journaled()
        assert scene.actions[TRAINER].restarts == []


async def test_a_hold_between_the_record_of_a_stop_and_its_signal_is_heeded(
    stage: Stage, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = yard.run(SLEEP)
    async with stage() as scene:
        scene.actions[ROLLOUT] = yard.action
        monkeypatch.setattr(yard.action, "proof_problem", lambda _: "")
        record_step = scene.journal.record_step

        def record_and_hold(action: int, step: str, **facts: Any) -> None:
            record_step(action, step, **facts)
            (scene.folder / "hold").touch()

        monkeypatch.setattr(scene.journal, "record_step", record_and_hold)
        scene.hear()
        await scene.clock.advance(10)
        assert scene.journaled() == ["alert", "restart", "intent", "stop", "interrupted", "held"]
        assert alive(own.pid)


def at_a_prompt(scene: Scene) -> None:
    scene.observer.runs["demo"] = replace(STALLED, at_prompt=True)


def with_a_stopped_process(scene: Scene) -> None:
    scene.observer.workers[TRAINER] = make_worker(stopped=1)


STALLED = RunState(step=30, last_step_at=NOW - 400, progress_at=NOW - 400, stall_limit=120)


@pytest.mark.parametrize("halt", [None, at_a_prompt, with_a_stopped_process])
async def test_a_run_that_an_operator_halts_after_the_decision_is_left_alone(
    stage: Stage, halt: Any
) -> None:
    async with stage() as scene:
        scene.observer.runs["demo"] = replace(STALLED, checkpoint=20, checkpoints=1, proved_step=20)

        async def take_evidence(*_: Any) -> None:
            if halt is not None:
                halt(scene)

        scene.context.evidence = take_evidence
        scene.hear(remediation="restart_stalled_run", worker="")
        await scene.clock.advance(10)
        assert scene.actions[TRAINER].restarts == ([1] if halt is None else [])
        assert scene.journaled()[:3] == ["alert", "restart", "intent"]
