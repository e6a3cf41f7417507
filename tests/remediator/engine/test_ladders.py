"""Ladders as they are climbed: by the engine, over time and over restarts of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import GIB, LATER, NOW, ROLLOUT, TRAINER, make_alert, make_worker
from tests.remediator.stage import Scene, Stage

from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.runtime.blocking_thread import SerialThread
from trainwarden_remediator.actions.base import ActionState
from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.observation.model import ExporterState, RunState, ServerState

DOWN: dict[str, Any] = {"remediation": "restart_inference", "alertname": "TrainingInferenceDown"}
STARTS = NOW - 20
CLIMBED = ["alert", "intent", "stop", "start", "done"]


class Night:
    """Night 2: the inference server is dead, and the trainer waits for it."""

    def __init__(
        self, scene: Scene, *, server_heals: bool = True, resumes_with: float = 1871
    ) -> None:
        self.scene = scene
        self.resumes_with = resumes_with
        observer = scene.observer
        for key in (ROLLOUT, TRAINER):
            observer.workers[key] = make_worker(memory_bytes=GIB)
        self.server = ServerState(
            "sglang-0",
            "rollout-0",
            "inference",
            up=False,
            reason="refused",
            since=NOW - 60,
            start_grace=0,
        )
        observer.runs["demo"] = RunState(
            step=1874,
            last_step_at=NOW - 60,
            progress_at=NOW - 60,
            stall_limit=300,
            phase="training",
            checkpoint=1870,
            checkpoints=1,
            recovery_matches=True,
        )
        self.show()
        if server_heals:
            scene.actions[ROLLOUT].after = self.serve
        scene.actions[TRAINER].after = self.resume

    def show(self, **changes: Any) -> None:
        self.server = replace(self.server, **changes)
        self.scene.observer.servers["demo"] = (self.server,)

    def run(self, **changes: Any) -> None:
        self.scene.observer.runs["demo"] = replace(self.scene.observer.runs["demo"], **changes)

    def serve(self) -> None:
        now = self.scene.clock.now()
        self.show(up=True, reason="ok", since=now, answered=True, asked_at=now + 1)

    def resume(self) -> None:
        """The trainer makes its first step as soon as it is started."""
        now = self.scene.clock.now() + 1
        first = self.resumes_with
        resumed = {"first_step": first, "resume_step": 1870, "step_spacing": 1}
        self.run(step=first, last_step_at=now, progress_at=now, **resumed)

    def step(self) -> None:
        now = self.scene.clock.now()
        self.run(step=1875, last_step_at=now, progress_at=now)

    def fire(self, *, firing: bool = True) -> None:
        self.scene.hear(starts_at=STARTS, firing=firing, **DOWN)

    def resolve(self) -> None:
        self.scene.observer.known = {}
        self.fire(firing=False)


def outcomes(scene: Scene) -> list[tuple[str, str]]:
    events = reversed(scene.journal.newest_events(1000))
    return [(e.worker, e.facts["outcome"]) for e in events if e.kind == "outcome"]


def restarts(scene: Scene) -> dict[str, int]:
    return {key.worker: len(one.restarts) for key, one in scene.actions.items() if one.restarts}


async def outcome_of_a_restart(scene: Scene, night: Night, resume: Callable[[], None]) -> Event:
    """Returns the outcome of the restart of the trainer, after which it does what `resume` does."""
    scene.actions[TRAINER].after = resume
    night.fire()
    await scene.clock.advance(10)
    night.resolve()
    await scene.clock.advance(345)
    return next(one for one in scene.journal.newest_events(50) if one.kind == "outcome")


async def test_a_trainer_that_recovers_alone_is_left_alone(stage: Stage) -> None:
    async with stage() as scene:
        night = Night(scene)
        night.fire()
        await scene.clock.advance(10)
        assert outcomes(scene) == [("rollout-0", "healed")]
        night.resolve()
        await scene.clock.advance(60)
        assert scene.journaled()[-3:] == ["healed", "awaiting_progress", "resolved"]
        night.step()
        await scene.clock.advance(10)
        assert scene.journaled()[-1] == "progressing"
        assert scene.journal.open_incidents() == ()
        assert restarts(scene) == {"rollout-0": 1}


async def test_the_restart_of_a_hung_server_is_no_second_incident(stage: Stage) -> None:
    async with stage() as scene:
        night = Night(scene)
        night.show(reason="hung")
        scene.actions[ROLLOUT].after = lambda: night.show(reason="refused")
        scene.hear(starts_at=STARTS, **{**DOWN, "alertname": "TrainingInferenceHung"})
        await scene.clock.advance(2)
        begins = scene.clock.now() - 1
        scene.hear(starts_at=begins, fingerprint=LATER, **DOWN)
        await scene.clock.advance(2)
        assert scene.journaled()[-1] == "busy"
        night.serve()
        await scene.clock.advance(10)
        (hung, down) = scene.journal.open_incidents()
        assert down.outage == hung.id
        assert down.last_decision == "wait alert_lingers"
        assert scene.journal.count_open() == 1
        # It dies during the cooldown, and its alert fires on.
        night.show(up=False, reason="refused")
        await scene.clock.advance(2)
        down = scene.journal.open_incidents()[-1]
        assert (down.last_decision, down.outage) == ("wait cooldown", hung.id)
        assert down.last_detail.endswith("then attempt 2 of 3")
        night.serve()
        await scene.clock.advance(2)
        assert scene.journal.open_incidents()[-1].last_decision == "wait alert_lingers"
        # It is down again, long after that restart.
        scene.hear(starts_at=begins, fingerprint=LATER, firing=False, **DOWN)
        await scene.clock.advance(5)
        scene.hear(starts_at=scene.clock.now(), fingerprint=LATER, **DOWN)
        await scene.clock.advance(1)
        assert scene.journal.open_incidents()[-1].part_of is None


async def test_a_trainer_that_does_not_is_restarted_and_resumes_with_the_next_step(
    stage: Stage,
) -> None:
    async with stage() as scene:
        night = Night(scene)
        night.fire()
        await scene.clock.advance(10)
        night.resolve()
        await scene.clock.advance(290)
        assert restarts(scene) == {"rollout-0": 1}
        await scene.clock.advance(50)
        assert restarts(scene) == {"rollout-0": 1, "trainer": 1}
        assert outcomes(scene) == [("rollout-0", "healed"), ("trainer", "healed")]
        assert scene.journaled()[-1] == "resolved"
        (healed, *_) = (e for e in scene.journal.newest_events(50) if e.kind == "outcome")
        assert "remark" not in healed.facts
        assert scene.journal.given_up(0) == ()


@pytest.mark.parametrize(
    ("first", "remark"), [(1869, "repeated 2 steps"), (1873, "skipped 2 steps")]
)
async def test_a_resume_that_is_off_is_reported_with_the_outcome(
    stage: Stage, first: float, remark: str
) -> None:
    async with stage() as scene:
        night = Night(scene, resumes_with=first)
        night.fire()
        await scene.clock.advance(10)
        night.resolve()
        await scene.clock.advance(345)
        (healed, *_) = (e for e in scene.journal.newest_events(50) if e.kind == "outcome")
        assert healed.facts["remark"] == f"{remark}: resumed with step {first:g}, not 1871"


async def test_what_the_exporter_shows_of_the_resume_before_is_not_taken_for_this_one(
    stage: Stage,
) -> None:
    """It may see the first steps of a process before its start."""
    async with stage() as scene:
        night = Night(scene, resumes_with=1875)
        observe = scene.observer.observe

        async def observe_late() -> ExporterState:
            found: ExporterState = await observe()
            if found.runs["demo"].first_step == 1601:
                night.run(resume_step=1874, first_step=1875)
            return found

        def resume() -> None:
            night.resume()
            night.run(resume_step=1600, first_step=1601, checkpoint=1874)
            scene.observer.observe = observe_late

        healed = await outcome_of_a_restart(scene, night, resume)
        assert (healed.facts["resume_step"], healed.facts["first_step"]) == (1874, 1875)
        assert "remark" not in healed.facts


async def test_the_exporter_counts_the_steps_that_a_restart_cost(
    stage: Stage,
) -> None:
    async with stage() as scene:
        night = Night(scene)
        night.run(steps_repeated=3)

        def resume() -> None:
            night.resume()
            night.run(steps_repeated=24)  # it went on until its process was stopped

        healed = await outcome_of_a_restart(scene, night, resume)
        assert (healed.worker, healed.facts["steps_repeated"]) == ("trainer", 21)


async def test_a_resume_past_a_damaged_checkpoint_is_not_off(stage: Stage) -> None:
    async with stage() as scene:
        night = Night(scene, resumes_with=1801)
        night.run(proved_step=1800)

        def resume() -> None:
            night.resume()
            night.run(resume_step=1800)

        healed = await outcome_of_a_restart(scene, night, resume)
        assert healed.facts["first_step"] == 1801
        assert "remark" not in healed.facts


async def test_a_resume_from_an_earlier_step_than_the_proved_one_is_recorded(stage: Stage) -> None:
    async with stage() as scene:
        night = Night(scene, resumes_with=1)
        night.run(proved_step=1870)

        def resume() -> None:
            night.resume()
            night.run(step=3, resume_step=0, resume_checkpoint=1870, proved_checkpoint="/ck/1870")

        healed = await outcome_of_a_restart(scene, night, resume)
        assert healed.facts["passed_over"] == 1870
        assert healed.facts["proved_checkpoint"] == "/ck/1870"


async def test_a_server_that_stays_down_pages_the_on_call_and_costs_no_trainer(
    stage: Stage,
) -> None:
    async with stage(alert_stale_after=3600) as scene:
        night = Night(scene, server_heals=False)
        night.fire()
        await scene.clock.advance(1000)
        assert outcomes(scene) == [("rollout-0", "not_healed")] * 2
        assert scene.journaled()[-1] == "ladder_exhausted"
        assert scene.journal.given_up(NOW) == (ROLLOUT,)
        night.fire()
        await scene.clock.advance(1000)
        assert restarts(scene) == {"rollout-0": 2}


async def test_a_trainer_that_does_not_resume_pages_the_on_call(stage: Stage) -> None:
    async with stage() as scene:
        night = Night(scene)
        scene.actions[TRAINER].after = lambda: None
        night.fire()
        await scene.clock.advance(10)
        night.resolve()
        await scene.clock.advance(1500)
        assert outcomes(scene) == [("rollout-0", "healed"), ("trainer", "not_healed")]
        assert scene.journaled()[-1] == "ladder_exhausted"
        assert restarts(scene) == {"rollout-0": 1, "trainer": 1}
        # though the alert has long been over
        assert len(scene.journal.given_up(scene.clock.now() - 1000)) == 1


async def test_while_the_alert_stands_the_end_of_the_ladder_is_given_up(stage: Stage) -> None:
    async with stage(alert_stale_after=3600) as scene:
        night = Night(scene)

        def fail() -> None:
            night.show(up=False, reason="hung")

        scene.actions[TRAINER].after = fail
        night.fire()
        await scene.clock.advance(1500)
        assert outcomes(scene) == [("rollout-0", "healed"), ("trainer", "not_healed")]
        assert scene.journaled()[-1] == "ladder_exhausted"
        assert scene.journal.given_up(NOW) == (TRAINER,)


async def test_a_trainer_that_resumes_late_after_all_calls_nobody(stage: Stage) -> None:
    async with stage() as scene:
        night = Night(scene)

        scene.actions[TRAINER].after = lambda: night.run(stall_limit=30)
        night.fire()
        await scene.clock.advance(10)
        night.resolve()
        while ("trainer", "not_healed") not in outcomes(scene):
            await scene.clock.advance(0.5)
            if scene.journaled()[-1] == "done":
                scene.observer.blind = ObservationError("it is restarted")
        scene.observer.blind = None
        scene.clock.pass_by(1)
        night.step()
        await scene.clock.advance(10)
        assert scene.journaled()[-1] == "progressing"
        assert scene.journal.given_up(0) == ()


async def test_an_engine_is_given_its_time_to_start(stage: Stage) -> None:
    async with stage() as scene:
        night = Night(scene)
        scene.actions[ROLLOUT].after = lambda: night.show(reason="starting", start_grace=600)
        night.fire()
        await scene.clock.advance(700)
        assert outcomes(scene) == []
        night.serve()
        await scene.clock.advance(10)
        assert outcomes(scene) == [("rollout-0", "healed")]


async def test_a_worker_that_dies_while_it_starts_is_not_waited_for(stage: Stage) -> None:
    async with stage() as scene:
        night = Night(scene)
        scene.actions[ROLLOUT].after = lambda: night.show(reason="starting", start_grace=600)
        night.fire()
        await scene.clock.advance(300)
        night.show(reason="refused")
        await scene.clock.advance(2)
        assert outcomes(scene) == [("rollout-0", "not_healed")]


async def test_a_server_that_dies_while_a_first_step_is_awaited_is_restarted(stage: Stage) -> None:
    async with stage() as scene:
        night = Night(scene)

        def server_dies() -> None:
            night.show(up=False, reason="refused", since=scene.clock.now())

        scene.actions[TRAINER].after = server_dies
        scene.observer.known[LATER] = AlertState.ACTIVE
        night.serve()
        night.show(since=NOW - 1000)
        night.run(progress_at=NOW - 400)
        scene.hear(fingerprint=LATER, remediation="restart_stalled_run", worker="")
        await scene.clock.advance(20)
        night.fire()
        await scene.clock.advance(8)
        assert restarts(scene) == {"trainer": 1}
        await scene.clock.advance(10)
        assert restarts(scene) == {"trainer": 1, "rollout-0": 1}
        night.step()
        await scene.clock.advance(10)
        assert sorted(outcomes(scene)) == [("rollout-0", "healed"), ("trainer", "healed")]


@pytest.mark.parametrize("reason", ["starting", "paused", "sleeping", "updating_weights"])
async def test_a_server_that_is_at_work_provokes_nothing(stage: Stage, reason: str) -> None:
    async with stage(alert_stale_after=3600) as scene:
        night = Night(scene)
        night.show(reason=reason)
        night.fire()
        await scene.clock.advance(1200)
        assert restarts(scene) == {}
        assert scene.journaled() == ["alert", "condition_cleared"]


async def test_what_the_exporter_does_not_show_is_no_ground(stage: Stage) -> None:
    async with stage(alert_stale_after=3600) as scene:
        night = Night(scene)
        scene.observer.servers = {}
        night.fire()
        await scene.clock.advance(60)
        assert scene.journaled() == ["alert", "observation_failed"]
        assert restarts(scene) == {}


# holding a whole run


async def test_a_restart_loop_holds_its_run_and_is_reported_once(stage: Stage) -> None:
    async with stage(alert_stale_after=3600) as scene:
        night = Night(scene)
        scene.observer.known[LATER] = AlertState.ACTIVE
        loop = {
            "alertname": "TrainingContainerRestartLoop",
            "worker": "",
            "remediation": "hold_restarts",
            "container": "pod",
        }
        for _ in range(50):
            scene.hear(fingerprint=LATER, starts_at=NOW - 30, **loop)
            night.fire()
            stalled = {"remediation": "restart_stalled_run", "worker": ""}
            scene.hear(fingerprint="2" * 16, starts_at=STARTS, **stalled)
            await scene.clock.advance(17)
        assert restarts(scene) == {}
        journaled = scene.journaled()
        assert (journaled.count("hold"), journaled.count("held_by_alert")) == (1, 2)
        assert "gave_up" not in str(scene.journal.counters())
        scene.hear(fingerprint=LATER, starts_at=NOW - 30, firing=False, **loop)
        night.run(progress_at=scene.clock.now())
        await scene.clock.advance(4)
        assert restarts(scene) == {"rollout-0": 1}


async def test_it_holds_the_second_rung_of_a_ladder_that_was_begun_before(stage: Stage) -> None:
    async with stage() as scene:
        night = Night(scene)
        night.fire()
        await scene.clock.advance(10)
        night.resolve()
        scene.hear(fingerprint=LATER, remediation="hold_restarts", worker="", alertname="Loop")
        await scene.clock.advance(400)
        assert restarts(scene) == {"rollout-0": 1}
        assert scene.journaled()[-1] == "held_by_alert"


# over restarts of the remediator


async def test_the_ladder_is_gone_on_with_after_a_restart_of_the_remediator(stage: Stage) -> None:
    async with stage() as scene:
        night = Night(scene)
        night.fire()
        await scene.clock.advance(10)
        night.resolve()
        await scene.clock.advance(100)
    clock = scene.clock
    for _ in range(3):
        async with stage() as again:
            Night(again).serve()
            await clock.advance(50)
            assert restarts(again) == {}
    async with stage() as last:
        Night(last).serve()
        await clock.advance(200)
        assert restarts(last) == {"trainer": 1}
        assert outcomes(last) == [("rollout-0", "healed"), ("trainer", "healed")]


def second_rung_cut_short(reached: str | None, stands: ActionState) -> Callable[[Scene], None]:
    """The first rung had healed; of the second, a crash left this much."""

    def leave(scene: Scene) -> None:
        journal = scene.journal
        journal.record_alerts([make_alert(starts_at=STARTS, **DOWN)])
        first = journal.record_intent(1, ROLLOUT, "restart", [Identity(4242, 17)])
        for write in (journal.record_result, journal.record_outcome):
            write(first, "done" if write == journal.record_result else "healed")  # type: ignore[arg-type]
        scene.clock.pass_by(310)
        second = journal.record_intent(
            1, TRAINER, "restart", [Identity(5151, 18)], rung=1, step=1874, checkpoint=1870
        )
        if reached:
            journal.record_step(second, reached, command=[], processes=[])
        journal.record_alerts([make_alert(starts_at=STARTS, firing=False, **DOWN)])
        scene.clock.pass_by(3)
        night = Night(scene)
        night.serve()
        scene.actions[TRAINER].stands = stands
        if stands is ActionState.STARTED:
            night.resume()
            scene.observer.workers[TRAINER] = make_worker(started_at=NOW + 311, memory_bytes=GIB)
        scene.observer.known = {}

    return leave


SETTLED: list[tuple[str | None, ActionState, list[str], dict[str, int]]] = [
    # nothing had been done of it: it is tried again
    (None, ActionState.UNTOUCHED, ["interrupted", *CLIMBED[1:], "healed"], {"trainer": 1}),
    # something had: it is brought to its end, or counted as tried, and never repeated
    ("stop", ActionState.UNTOUCHED, ["interrupted"], {}),
    ("stop", ActionState.ENDED, ["start", "done", "healed"], {}),
    ("stop", ActionState.REPLACED, ["interrupted"], {}),
    ("start", ActionState.STARTED, ["done", "healed"], {}),
]


@pytest.mark.parametrize(("reached", "stands", "journaled", "restarted"), SETTLED)
async def test_a_second_rung_cut_short_is_settled_and_never_repeated(
    stage: Stage,
    reached: str | None,
    stands: ActionState,
    journaled: list[str],
    restarted: dict[str, int],
) -> None:
    async with stage(before=second_rung_cut_short(reached, stands)) as scene:
        await scene.clock.advance(900)
        before = ["alert", "intent", "done", "healed", "intent", *([reached] if reached else [])]
        done = scene.done()
        assert done[: len(before)] == before
        assert [word for word in done[len(before) :] if word != "resolved"] == journaled
        assert restarts(scene) == restarted
        assert scene.journal.open_actions() == ()
        assert scene.journal.open_incidents() == ()


async def test_a_first_rung_cut_short_counts_as_tried(stage: Stage) -> None:
    rungs = [{"verify": {"serves": True}}, {"verify": {"serves": True, "timeout": "10m"}}]

    def leave(scene: Scene) -> None:
        scene.journal.record_alerts([make_alert(starts_at=STARTS, **DOWN)])
        number = scene.journal.record_intent(1, ROLLOUT, "restart", [Identity(4242, 17)])
        scene.journal.record_step(number, "stop", processes=[])
        scene.clock.pass_by(3)
        Night(scene)

    playbooks = {"restart_inference": {"rungs": rungs}}
    async with stage(before=leave, playbooks=playbooks, alert_stale_after=3600) as scene:
        await scene.clock.advance(200)
        intents = [e for e in reversed(scene.journal.newest_events(99)) if e.kind == "intent"]
        assert [event.facts["rung"] for event in intents] == [0, 1]


async def test_what_was_ended_is_not_started_while_an_alert_holds_its_run(stage: Stage) -> None:
    def leave(scene: Scene) -> None:
        second_rung_cut_short("stop", ActionState.ENDED)(scene)
        scene.hear(fingerprint=LATER, remediation="hold_restarts", worker="", alertname="Loop")

    async with stage(before=leave) as scene:
        await scene.clock.advance(20)
        assert scene.actions[TRAINER].finishes == []
        (cut,) = (e for e in scene.journal.newest_events(9) if e.facts.get("found"))
        assert cut.facts["found"] == "ended, not started again: held while Loop lasts"


# the engine itself


async def test_no_decision_is_made_while_it_stops(stage: Stage) -> None:
    async with stage() as scene:
        stopping = [True]
        scene.engine._deciding = lambda: not stopping[0]
        scene.hear()
        await scene.clock.advance(60)
        assert scene.journaled() == ["alert"]
        assert scene.engine.is_alive()
        stopping[0] = False
        await scene.clock.advance(2)
        assert scene.action.restarts == [1]


async def test_a_stop_request_during_an_observation_is_soon_enough(stage: Stage) -> None:
    async with stage() as scene:
        asked = scene.observer.alerts
        stopping: list[bool] = []

        async def alerts() -> Any:
            stopping.append(True)
            return await asked()

        scene.observer.alerts = alerts
        scene.engine._deciding = lambda: len(stopping) < 2
        scene.hear()
        await scene.clock.advance(60)
        assert scene.action.restarts == []


async def test_it_is_known_when_it_last_came_round(stage: Stage) -> None:
    async with stage() as scene:
        await scene.clock.advance(10)
        assert scene.engine.last_cycle_at == NOW + 10
        assert scene.engine.is_alive()
        scene.clock.pass_by(119)
        assert scene.engine.is_alive()
        scene.clock.pass_by(1)
        assert not scene.engine.is_alive()


async def test_a_clock_that_is_set_does_not_shorten_what_is_waited_for(stage: Stage) -> None:
    async with stage() as scene:
        scene.action.heal = {"memory_bytes": 9 * GIB}
        scene.hear()
        await scene.clock.advance(10)
        scene.clock.set_forward(3600)
        # The exporter computes start times from the clock, too.
        scene.observer.workers[ROLLOUT] = make_worker(started_at=NOW + 3600, memory_bytes=GIB)
        await scene.clock.advance(10)
        assert scene.journaled()[-2:] != ["not_healed", "cooldown"]
        assert outcomes(scene) == [("rollout-0", "healed")]


@pytest.mark.parametrize(
    ("key", "saving", "looked", "blind", "answer"),
    [
        (TRAINER, True, 0, False, True),
        (TRAINER, False, 0, False, False),
        (TRAINER, False, -1, False, True),
        (TRAINER, False, None, False, False),
        (TRAINER, False, 0, True, True),
        (ROLLOUT, True, 0, False, False),
    ],
)
async def test_an_act_can_ask_whether_its_trainer_saves(
    tmp_path: Path,
    journal: Journal,
    clock: FakeClock,
    *,
    key: Any,
    saving: bool,
    looked: float | None,
    blind: bool,
    answer: bool,
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))
    scene = Scene(tmp_path, journal, clock)
    seen_at = None if looked is None else NOW + looked
    Night(scene).run(saving=saving, checkpoints_seen_at=seen_at)
    target = scene.setup.config.target(key)
    assert target is not None
    order = scene.engine._executor._action_request(1, "restart_leaking_worker", 0, target, None)
    scene.observer.blind = ObservationError("away") if blind else None
    thread = SerialThread("an act")
    assert await thread.call(scene.engine._executor.action_runner._save_check(order)) is answer
    thread.close()


@pytest.mark.parametrize(("since", "took", "waits"), [(1, 2, False), (1, 9, True), (-1, 2, True)])
async def test_an_act_waits_for_one_save_and_not_for_the_next(
    tmp_path: Path, journal: Journal, clock: FakeClock, *, since: float, took: float, waits: bool
) -> None:
    """A run that saves as often as its checkpoints settle always seems to be saving."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))
    scene = Scene(tmp_path, journal, clock)
    target = scene.setup.config.target(TRAINER)
    assert target is not None
    order = scene.engine._executor._action_request(1, "restart_leaking_worker", 0, target, None)
    is_saving, thread = scene.engine._executor.action_runner._save_check(order), SerialThread("act")
    run = {"saving": True, "save_seconds": took}
    Night(scene).run(**run, saving_since=NOW - 20, checkpoints_seen_at=NOW)
    assert await thread.call(is_saving) is True
    await clock.advance(15)
    Night(scene).run(**run, saving_since=NOW + since, checkpoints_seen_at=clock.now())
    assert await thread.call(is_saving) is waits
    thread.close()
