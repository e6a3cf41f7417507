"""Whether an action may still be taken after it has waited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import (
    FINGERPRINT,
    GIB,
    LATER,
    NOW,
    ROLLOUT,
    TRAINER,
    make_alert,
    make_worker,
)
from tests.remediator.stage import Scene

from trainwarden_remediator.alertmanager.api import AlertState, Silence, SilenceMatcher
from trainwarden_remediator.config.playbooks import Condition
from trainwarden_remediator.engine.permission import ANSWER_COUNTS_SECONDS, Permission
from trainwarden_remediator.exceptions import ActionDeferredError, ObservationError
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.model import Need
from trainwarden_remediator.observation.model import RunState, ServerState
from trainwarden_remediator.observation.snapshot import Snapshot

SILENCE = Silence((SilenceMatcher("worker", "rollout-0"),))


@pytest.fixture
def scene(tmp_path: Path, journal: Journal, clock: FakeClock) -> Scene:
    journal.record_alerts([make_alert(starts_at=NOW - 20)])
    return Scene(tmp_path, journal, clock)


LEAKS = Need(Condition.OVER_MEMORY_LIMIT, ROLLOUT)
STALLS = Need(Condition.NO_PROGRESS, TRAINER)
STALLED = RunState(progress_at=NOW - 300, stall_limit=60, trainer_processes=1)


async def asking(scene: Scene, *, need: Need | None = LEAKS) -> Permission:
    """A permission for the restart of rollout-0 that is in force at the decision."""
    (incident,) = scene.journal.open_incidents()
    target = scene.setup.config.target(ROLLOUT)
    assert target is not None
    decided = Snapshot(await scene.observer.alerts(), await scene.observer.observe())
    permission = Permission(scene.context, incident, target, decided, need=need)
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


@pytest.mark.parametrize("way", [wait_at_a_prompt, stop_a_rank])
async def test_an_operator_who_halts_a_stalled_run_while_a_save_is_waited_for_is_heeded(
    scene: Scene, way: Callable[[Scene], str]
) -> None:
    """Of a worker over its memory limit, another process that is stopped says nothing."""
    scene.observer.runs["demo"] = STALLED
    stalled, leaking = await asking(scene, need=STALLS), await asking(scene)
    await asyncio.to_thread(stalled.confirm)
    reason = way(scene)
    scene.clock.pass_by(ANSWER_COUNTS_SECONDS + 1)
    with pytest.raises(ActionDeferredError, match=f"^{reason}$"):
        await asyncio.to_thread(stalled.confirm)
    await asyncio.to_thread(leaking.confirm)


GONE = "no longer needed: the exporter no longer shows the condition"


def hide(scene: Scene) -> str:
    scene.observer.blind = ObservationError("the exporter does not answer")
    return "the exporter does not answer"


def make_a_step(scene: Scene) -> str:
    now = scene.clock.now()
    scene.observer.runs["demo"] = replace(STALLED, progress_at=now - 10, last_step_at=now - 10)
    return GONE


def finish(scene: Scene) -> str:
    scene.observer.runs["demo"] = replace(STALLED, finished=True)
    return GONE


def move(scene: Scene) -> str:
    scene.observer.runs["demo"] = replace(STALLED, moving=True, restart_limit=3600)
    return "no longer needed: its stacks move"


def start_exporter(scene: Scene) -> str:
    """The exporter has started, and does not know yet whether the run moves."""
    scene.observer.runs["demo"] = replace(STALLED, undecided=True, restart_limit=3600)
    return "its processes were looked at for too short a time since a start of the exporter"


def lose_its_server(scene: Scene) -> str:
    server = ServerState("vllm", "vllm", "inference", up=False, reason="refused")
    scene.observer.servers["demo"] = (server,)
    return r"no longer needed: its inference server vllm is not up \(refused\)"


def forget_its_progress(scene: Scene) -> str:
    del scene.observer.runs["demo"]
    return "the exporter does not show the run's progress"


def shrink(scene: Scene) -> str:
    scene.observer.workers[ROLLOUT] = make_worker(memory_bytes=GIB)
    return GONE


def answer_again(scene: Scene) -> str:
    server = ServerState("vllm", "rollout-0", "inference", up=True, reason="")
    scene.observer.servers["demo"] = (server,)
    return rf"{GONE} \(vllm: up\)"


SERVER_DOWN = Need(Condition.INFERENCE_DOWN, ROLLOUT)
FOLLOW_UP = Need(Condition.INFERENCE_DOWN, ROLLOUT, no_step_since=NOW - 200)
FOLLOWED = replace(STALLED, last_step_at=NOW - 300)


def go_on(scene: Scene) -> str:
    scene.observer.runs["demo"] = replace(FOLLOWED, last_step_at=NOW)
    return "no longer needed: the run makes steps again"


@pytest.mark.parametrize(
    ("need", "way"),
    [
        *((STALLS, way) for way in (make_a_step, finish, move, lose_its_server)),
        *((STALLS, way) for way in (forget_its_progress, hide, start_exporter)),
        *((LEAKS, way) for way in (shrink, hide)),
        *((SERVER_DOWN, way) for way in (answer_again, hide)),
        *((FOLLOW_UP, way) for way in (go_on, forget_its_progress, hide)),
    ],
)
async def test_a_condition_that_ends_before_the_first_signal_ends_the_action(
    scene: Scene, need: Need, way: Callable[[Scene], str]
) -> None:
    """The alert, which lags behind the exporter, is active all the time."""
    scene.observer.runs["demo"] = FOLLOWED
    if need is SERVER_DOWN:
        down = ServerState("vllm", "rollout-0", "inference", up=False, reason="refused")
        scene.observer.servers["demo"] = (down,)
    permission = await asking(scene, need=need)
    await asyncio.to_thread(permission.confirm)
    reason = way(scene)
    scene.clock.pass_by(ANSWER_COUNTS_SECONDS + 1)
    with pytest.raises(ActionDeferredError, match=f"^{reason}$"):
        await asyncio.to_thread(permission.confirm)


async def test_an_action_about_no_condition_of_the_exporter_does_not_need_its_answer(
    scene: Scene,
) -> None:
    permission = await asking(scene, need=None)
    hide(scene)
    scene.clock.pass_by(ANSWER_COUNTS_SECONDS + 1)
    assert await permission.blocker() == ""


async def test_a_follow_up_goes_on_without_its_alert_until_that_is_silenced(scene: Scene) -> None:
    scene.observer.known = {}
    scene.observer.runs["demo"] = FOLLOWED
    permission = await asking(scene, need=FOLLOW_UP)
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
