"""Whether an action may still be taken after it has waited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import (
    FINGERPRINT,
    LATER,
    NOW,
    ROLLOUT,
    TRAINER,
    make_alert,
    make_worker,
)
from tests.remediator.stage import Scene

from trainwarden_remediator.alertmanager.api import AlertState, Silence, SilenceMatcher
from trainwarden_remediator.engine.permission import ANSWER_COUNTS_SECONDS, Permission
from trainwarden_remediator.exceptions import ActionDeferredError, ObservationError
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.observation.model import RunState
from trainwarden_remediator.observation.snapshot import Snapshot

SILENCE = Silence((SilenceMatcher("worker", "rollout-0"),))


@pytest.fixture
def scene(tmp_path: Path, journal: Journal, clock: FakeClock) -> Scene:
    journal.record_alerts([make_alert(starts_at=NOW - 20)])
    return Scene(tmp_path, journal, clock)


async def asking(scene: Scene, *, yields_to_halt: bool = False) -> Permission:
    """A permission for the restart of rollout-0 that is in force at the decision."""
    (incident,) = scene.journal.open_incidents()
    target = scene.setup.config.target(ROLLOUT)
    assert target is not None
    decided = Snapshot(await scene.observer.alerts(), await scene.observer.observe())
    permission = Permission(scene.context, incident, target, decided, yields_to_halt=yields_to_halt)
    assert await permission.blocker() == ""
    return permission


def silence(scene: Scene) -> str:
    scene.observer.known[FINGERPRINT] = AlertState.SILENCED
    return "silenced at Alertmanager"


def inhibit(scene: Scene) -> str:
    scene.observer.known[FINGERPRINT] = AlertState.INHIBITED
    return "inhibited at Alertmanager"


def resolve(scene: Scene) -> str:
    del scene.observer.known[FINGERPRINT]
    return "not active at Alertmanager"


def unreachable(scene: Scene) -> str:
    scene.observer.deaf = ObservationError("no answer")
    return "no answer"


def hold(scene: Scene) -> str:
    (scene.folder / "hold").touch()
    return "held"


def observe(scene: Scene) -> str:
    scene.context.setup = scene.configured(mode="observe")
    return "the mode is observe"


@pytest.mark.parametrize("way", [silence, inhibit, resolve, unreachable, hold, observe])
async def test_what_changes_while_a_save_is_waited_for_stops_the_action(
    scene: Scene, way: Callable[[Scene], str]
) -> None:
    permission = await asking(scene)
    await asyncio.to_thread(permission.confirm)
    reason = way(scene)
    scene.clock.pass_by(ANSWER_COUNTS_SECONDS + 1)
    with pytest.raises(ActionDeferredError, match=f"^{reason}$"):
        await asyncio.to_thread(permission.confirm)


def wait_at_a_prompt(scene: Scene) -> str:
    scene.observer.runs["demo"] = RunState(at_prompt=True, waits="at a breakpoint")
    return r"it waits for you at a prompt, and is left alone \(at a breakpoint\)"


def stop_a_rank(scene: Scene) -> str:
    scene.observer.workers[TRAINER] = make_worker(stopped=1)
    return r"a process of it is stopped, and it is left alone \(`kill -CONT` continues it\)"


def hide(scene: Scene) -> str:
    scene.observer.blind = ObservationError("the exporter does not answer")
    return "the exporter does not answer"


@pytest.mark.parametrize("way", [wait_at_a_prompt, stop_a_rank, hide])
async def test_an_operator_who_halts_a_stalled_run_while_a_save_is_waited_for_is_heeded(
    scene: Scene, way: Callable[[Scene], str]
) -> None:
    """Of a worker over its memory limit, another process that is stopped says nothing."""
    stalled, leaking = await asking(scene, yields_to_halt=True), await asking(scene)
    await asyncio.to_thread(stalled.confirm)
    reason = way(scene)
    scene.clock.pass_by(ANSWER_COUNTS_SECONDS + 1)
    with pytest.raises(ActionDeferredError, match=f"^{reason}$"):
        await asyncio.to_thread(stalled.confirm)
    await asyncio.to_thread(leaking.confirm)


async def test_a_follow_up_goes_on_without_its_alert_until_that_is_silenced(scene: Scene) -> None:
    scene.observer.known = {}
    permission = await asking(scene)
    scene.observer.silences = (SILENCE,)
    scene.clock.pass_by(ANSWER_COUNTS_SECONDS + 1)
    assert await permission.blocker() == "silenced at Alertmanager"


async def test_an_alert_that_holds_its_run_and_came_meanwhile_stops_the_action(
    scene: Scene,
) -> None:
    permission = await asking(scene)
    blocking = make_alert(fingerprint=LATER, starts_at=NOW, remediation="hold_restarts")
    scene.journal.record_alerts([blocking])
    assert await permission.blocker() == "held while TrainingWorkerMemoryOverLimit lasts"
