"""What counts as healed: a trainer that makes new steps, else what has lived for a while."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.samples import GIB, NOW, ROLLOUT, TRAINER, make_worker
from tests.remediator.stage import Scene, Stage

from trainwarden_exporter.processes.announcements import (
    AnnouncedRuns,
    AnnouncedWorker,
    Announcement,
)
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.config.restart_methods.run import RunTarget
from trainwarden_remediator.config.targets import AnnouncedTarget
from trainwarden_remediator.engine.action_runner import interruption_facts
from trainwarden_remediator.observation.model import DiskState, RunState
from trainwarden_remediator.policy.verification import RELAPSE_SECONDS

GONE = make_worker(processes=0, started_at=None, memory_bytes=0.0)
LAST_STEP = 150
CRASHED = RunState(step=LAST_STEP, last_step_at=NOW - 60, progress_at=NOW - 60, stall_limit=300)


def outcomes(scene: Scene) -> list[tuple[str, str]]:
    return [
        (event.facts["outcome"], event.facts.get("seen", ""))
        for event in reversed(scene.journal.newest_events(1000))
        if event.kind == "outcome"
    ]


def taken_over(scene: Scene) -> list[str | None]:
    return [
        event.facts.get("taken_over")
        for event in reversed(scene.journal.newest_events(1000))
        if event.kind == "outcome"
    ]


def gone(key: WorkerKey, run: RunState | None = CRASHED) -> Any:
    def before(scene: Scene) -> None:
        scene.observer.workers[key] = GONE
        if run is not None:
            scene.observer.runs["demo"] = run

    return before


def crashes(scene: Scene, key: WorkerKey) -> None:
    scene.observer.workers[key] = GONE


async def started(scene: Scene, key: WorkerKey) -> None:
    scene.hear(remediation="start_missing_worker", worker=key.worker)
    await scene.clock.advance(4)
    assert scene.actions[key].restarts == [1]


async def test_a_trainer_that_crashes_on_its_resume_was_not_healed(stage: Stage) -> None:
    async with stage(before=gone(TRAINER)) as scene:
        await started(scene, TRAINER)
        await scene.clock.advance(20)  # it imports its libraries
        assert outcomes(scene) == []
        crashes(scene, TRAINER)
        await scene.clock.advance(6)
        assert outcomes(scene) == [("not_healed", "it ended soon after its start")]


@pytest.mark.parametrize(("kills", "ignored"), [((), None), ((4242, 4250), 1.0), ((4250,), None)])
async def test_what_was_killed_because_it_ignored_sigterm_is_noted_where_it_was_healed(
    stage: Stage, kills: tuple[int, ...], ignored: float | None
) -> None:
    """A process below it that lives longer has ended with it, as far as its saving goes."""
    async with stage() as scene:
        scene.actions[ROLLOUT].kills = kills
        scene.hear()
        await scene.clock.advance(120)
        (healed,) = [one for one in scene.journal.newest_events(1000) if one.kind == "outcome"]
        assert (healed.facts["outcome"], healed.facts.get("sigterm_ignored")) == ("healed", ignored)


STALLED_AT = NOW - 300


@pytest.mark.parametrize(
    ("last_step_at", "outcome"),
    [(STALLED_AT, "healed"), (NOW - 2, "not_healed"), (NOW + 10, "healed")],
)
async def test_a_run_that_had_gone_on_before_the_signal_was_not_healed_by_its_restart(
    stage: Stage, last_step_at: float, outcome: str
) -> None:
    """The step of (NOW - 2) is seen after the signal. One of (NOW + 10) came after it."""

    def stands(scene: Scene) -> None:
        scene.observer.workers[TRAINER] = make_worker(memory_bytes=GIB)
        stalled = replace(CRASHED, last_step_at=STALLED_AT, progress_at=STALLED_AT, stall_limit=60)
        scene.observer.runs["demo"] = replace(stalled, checkpoints=1, trainer_processes=1)

    async with stage(before=stands) as scene:
        scene.hear(remediation="restart_stalled_run", worker="")
        await scene.clock.advance(4)
        assert scene.actions[TRAINER].restarts == [1]
        now = scene.clock.now()
        again = {"step": LAST_STEP + 1, "first_step": LAST_STEP + 1, "progress_at": now + 1}
        scene.observer.runs["demo"] = replace(
            CRASHED, **again, last_step_at=now + 1, interruption_start=last_step_at
        )
        await scene.clock.advance(40)
        ((found, seen),) = outcomes(scene)
        assert found == outcome
        assert (seen == "it had made a new step before the signal") is (outcome == "not_healed")


async def test_the_verification_ends_when_an_operator_stops_the_run(stage: Stage) -> None:
    async with stage(before=gone(TRAINER)) as scene:
        await started(scene, TRAINER)
        crashes(scene, TRAINER)
        scene.context.setup = replace(scene.setup, stopped=frozenset({TRAINER}))
        await scene.clock.advance(2)
        assert outcomes(scene) == [("not_healed", "an operator has stopped it")]
        assert taken_over(scene) == ["stopped"]


@pytest.mark.parametrize("finished", [True, False])
async def test_what_its_trainwarden_run_ended_with_its_run_was_stopped_by_no_operator(
    stage: Stage, *, finished: bool
) -> None:
    async with stage(before=gone(ROLLOUT)) as scene:
        await started(scene, ROLLOUT)
        scene.observer.runs["demo"] = replace(CRASHED, finished=finished)
        crashes(scene, ROLLOUT)
        announced = AnnouncedRuns(ended_with_run=frozenset({ROLLOUT}))
        scene.context.setup = replace(
            scene.setup, stopped=frozenset({ROLLOUT}), announced=announced
        )
        await scene.clock.advance(10)
        (event,) = [one for one in scene.journal.newest_events(99) if one.kind == "outcome"]
        how = "its `trainwarden run` ended it, as the rest of its run had ended"
        outcome = "healed" if finished else "not_healed"
        remark = event.facts.get("remark" if finished else "seen")
        assert (event.facts["outcome"], remark) == (outcome, how)
        assert taken_over(scene) == ["ended_with_run"]


@pytest.mark.parametrize("restarted_through_it", [True, False])
async def test_a_run_that_an_operator_starts_meanwhile_was_not_healed(
    stage: Stage, *, restarted_through_it: bool
) -> None:
    """Another method, such as systemd, may itself start a `trainwarden run`."""
    async with stage(before=gone(TRAINER)) as scene:
        began = scene.clock.now()
        announced = announcement(at=began - 3600)
        config = scene.setup.config
        if restarted_through_it:
            method = RunTarget(run="r", socket=Path("/run.sock"), owner=0)
            target = AnnouncedTarget(run=TRAINER.run, worker=TRAINER.worker, announced=method)
            config = config.model_copy(update={"targets": [target]})
        scene.context.setup = replace(scene.setup, announced=announced, config=config)
        await started(scene, TRAINER)
        await scene.clock.advance(10)
        assert outcomes(scene) == []
        announced = announcement(at=scene.clock.now())
        scene.context.setup = replace(scene.setup, announced=announced, config=config)
        makes_step(scene, LAST_STEP + 1)
        await scene.clock.advance(2)
        not_healed = ("not_healed", "an operator has started it again")
        assert outcomes(scene) == [not_healed if restarted_through_it else ("healed", "")]
        assert taken_over(scene) == ["started_by_operator" if restarted_through_it else None]


def announcement(at: float) -> AnnouncedRuns:
    """`trainwarden run` announces the trainer since `at`."""
    one = Announcement(run=TRAINER.run, worker=TRAINER.worker, pid=7, announced_at=at)
    return AnnouncedRuns({TRAINER: AnnouncedWorker(one, Path("trainer.json"), 0)})


def makes_step(scene: Scene, step: float) -> None:
    now = scene.clock.now()
    scene.observer.runs["demo"] = replace(CRASHED, step=step, last_step_at=now, progress_at=now)


async def test_a_trainer_is_healed_once_it_makes_a_new_step(stage: Stage) -> None:
    async with stage(before=gone(TRAINER)) as scene:
        await started(scene, TRAINER)
        await scene.clock.advance(90)
        assert outcomes(scene) == []
        makes_step(scene, LAST_STEP + 1)
        await scene.clock.advance(2)
        assert outcomes(scene) == [("healed", "")]


async def test_a_trainer_is_not_healed_while_its_disk_has_no_room_to_save(stage: Stage) -> None:
    async with stage(before=gone(TRAINER)) as scene:
        await started(scene, TRAINER)
        room = DiskState("/ck", runs=frozenset({"demo"}), checkpoints_left={"demo": 3.0})
        scene.observer.disks = (replace(room, checkpoints_left={"demo": 0.4}),)
        step = replace(CRASHED, step=LAST_STEP + 1, last_step_at=scene.clock.now())
        scene.observer.runs["demo"] = step
        await scene.clock.advance(60)
        assert outcomes(scene) == []
        scene.observer.disks = (room,)
        await scene.clock.advance(10)
        assert outcomes(scene) == [("healed", "")]


async def test_a_trainer_that_exceeds_its_limit_again_was_not_healed_by_its_new_steps(
    stage: Stage,
) -> None:
    async with stage(before=lambda scene: scene.observer.runs.update(demo=CRASHED)) as scene:
        scene.hear(remediation="restart_leaking_worker", worker=TRAINER.worker)
        await scene.clock.advance(4)
        assert scene.actions[TRAINER].restarts == [1]
        makes_step(scene, LAST_STEP + 1)
        await scene.clock.advance(3)
        assert outcomes(scene) == []
        worker = scene.observer.workers[TRAINER]
        scene.observer.workers[TRAINER] = replace(worker, memory_bytes=9 * GIB)
        await scene.clock.advance(RELAPSE_SECONDS - 2)
        assert outcomes(scene) == []
        await scene.clock.advance(4)  # it must not grow for the whole time of the verification
        ((outcome, seen),) = outcomes(scene)
        assert outcome == "not_healed"
        assert "above its limit" in seen
        assert seen.endswith(", again")


async def test_an_exporter_that_does_not_show_the_run_for_a_while_is_no_relapse(
    stage: Stage,
) -> None:
    async with stage(before=lambda scene: scene.observer.runs.update(demo=CRASHED)) as scene:
        scene.hear(remediation="restart_leaking_worker", worker=TRAINER.worker)
        await scene.clock.advance(4)
        makes_step(scene, LAST_STEP + 1)
        await scene.clock.advance(3)
        run = scene.observer.runs.pop("demo")
        await scene.clock.advance(RELAPSE_SECONDS + 5)
        assert outcomes(scene) == []
        scene.observer.runs["demo"] = run
        await scene.clock.advance(40)
        assert outcomes(scene) == [("healed", "")]


@pytest.mark.parametrize(("seconds", "outcome"), [(3, "healed"), (20, "not_healed")])
async def test_a_trainer_that_is_ready_late_has_the_time_to_prove_that_it_stays_well(
    stage: Stage, seconds: float, outcome: str
) -> None:
    """A load of minutes has used up the time of the verification, and one look may find it ill."""
    async with stage(before=lambda scene: scene.observer.runs.update(demo=CRASHED)) as scene:
        scene.hear(remediation="restart_leaking_worker", worker=TRAINER.worker)
        await scene.clock.advance(4)
        await scene.clock.advance(280)
        makes_step(scene, LAST_STEP + 1)
        await scene.clock.advance(3)
        well = scene.observer.workers[TRAINER]
        scene.observer.workers[TRAINER] = replace(well, memory_bytes=9 * GIB)
        await scene.clock.advance(seconds)
        scene.observer.workers[TRAINER] = well
        await scene.clock.advance(60)
        assert outcomes(scene)[0][0] == outcome


async def test_a_trainer_that_repeats_steps_must_live_for_a_while(stage: Stage) -> None:
    async with stage(before=gone(TRAINER)) as scene:
        await started(scene, TRAINER)
        makes_step(scene, LAST_STEP)
        await scene.clock.advance(3)
        assert outcomes(scene) == []
        await scene.clock.advance(5)
        assert outcomes(scene) == [("healed", "")]


async def test_a_trainer_that_hangs_at_the_same_step_again_was_not_healed(stage: Stage) -> None:
    """It repeats the steps before it, and does not end."""
    async with stage(before=gone(TRAINER)) as scene:
        await started(scene, TRAINER)
        await scene.clock.advance(16)
        hung = replace(CRASHED, phase="training", usual_step_seconds=0.3, stall_limit=60)
        then = scene.clock.now() - 15.5
        scene.observer.runs["demo"] = replace(hung, last_step_at=then, progress_at=then)
        await scene.clock.advance(40)
        assert outcomes(scene) == []
        await scene.clock.advance(8)
        assert outcomes(scene) == [("not_healed", "it stands still again")]


STARTS = RunState(phase="starting", stall_limit=1800, usual_step_seconds=1, trainer_processes=1)


@pytest.mark.parametrize(
    ("hangs", "seconds", "seen"),
    [
        # its first step, which is no new one, was read when it had no time any more
        ({"phase": "training", "step": 41, "first_step": 41}, 61, "it stands still again"),
        # it hangs in its start
        ({"stuck": True}, 121, "its stacks show that it is stuck"),
        ({}, 1800, "it stands still again"),
    ],
)
async def test_a_run_that_hangs_again_is_judged_and_its_alert_is_decided(
    stage: Stage, hangs: dict[str, Any], seconds: float, seen: str
) -> None:
    """The exporter may not know when it made a step, or that it made one."""
    known: dict[str, Any] = {"step": 41, "checkpoint": 40, "checkpoints": 1, "proved_step": 40}
    hung = replace(STARTS, **known, last_step_at=NOW - 300, progress_at=NOW - 300)
    hung = replace(hung, phase="training", stall_limit=60, recovery_matches=True)
    async with stage() as scene:
        scene.observer.runs["demo"] = hung
        stall: dict[str, Any] = {"remediation": "restart_stalled_run", "worker": ""}
        scene.hear(**stall)
        await scene.clock.advance(4)
        assert scene.actions[TRAINER].restarts == [1]
        now = scene.clock.now()
        limit = 60 if hangs.get("first_step") else 1800
        started: dict[str, Any] = {
            "step": None,
            "last_step_at": None,
            "progress_at": now,
            "stall_limit": limit,
        }
        scene.observer.runs["demo"] = replace(hung, **{**started, "phase": "starting", **hangs})
        await scene.pass_time(seconds - 10, **stall)
        assert outcomes(scene) == []
        await scene.clock.advance(15)
        assert outcomes(scene) == [("not_healed", seen)]
        scene.observer.runs["demo"] = replace(scene.observer.runs["demo"], stall_limit=60)
        await scene.clock.advance(200)
        assert scene.actions[TRAINER].restarts == [1, 2]


async def test_a_start_is_granted_no_more_time_than_its_first_looks_show(stage: Stage) -> None:
    """Else a limit that grows with each restart of the exporter would never be reached."""
    async with stage(before=gone(TRAINER)) as scene:
        await started(scene, TRAINER)
        start = replace(STARTS, stall_limit=900)
        for minute in range(20):
            now = scene.clock.now()
            scene.observer.runs["demo"] = replace(
                start, progress_at=now, stall_limit=900 + 60 * minute
            )
            await scene.clock.advance(60)
        assert outcomes(scene) == [("not_healed", "it has not made a step yet")]


async def test_a_new_step_counts_from_the_look_that_shows_it(stage: Stage) -> None:
    async with stage(before=gone(TRAINER)) as scene:
        await started(scene, TRAINER)
        makes_step(scene, LAST_STEP)
        await scene.clock.advance(3)
        makes_step(scene, LAST_STEP + 1)
        await scene.clock.advance(1)
        crashes(scene, TRAINER)
        await scene.clock.advance(6)
        assert outcomes(scene) == [("not_healed", "it ended soon after its start")]


async def test_a_trainer_that_fails_at_the_same_step_again_was_not_healed(stage: Stage) -> None:
    async with stage(before=gone(TRAINER)) as scene:
        await started(scene, TRAINER)
        makes_step(scene, LAST_STEP)
        await scene.clock.advance(3)
        crashes(scene, TRAINER)
        await scene.clock.advance(6)
        assert outcomes(scene) == [("not_healed", "it ended soon after its start")]


async def test_a_step_of_its_predecessor_does_not_heal_it(stage: Stage) -> None:
    async with stage(before=gone(TRAINER)) as scene:
        heal = dict(scene.actions[TRAINER].heal)
        scene.actions[TRAINER].heal = heal
        await started(scene, TRAINER)
        worker = scene.observer.workers[TRAINER]
        now = scene.clock.now()
        scene.observer.workers[TRAINER] = replace(worker, started_at=now + 5)
        scene.observer.runs["demo"] = replace(CRASHED, last_step_at=now + 2)
        await scene.clock.advance(20)
        assert outcomes(scene) == []


async def test_a_trainer_whose_steps_are_not_observed_must_live_for_a_while(stage: Stage) -> None:
    async with stage(before=gone(TRAINER, None)) as scene:
        await started(scene, TRAINER)
        await scene.clock.advance(10)
        assert outcomes(scene) == [("healed", "")]


async def test_a_worker_that_ends_soon_after_its_start_is_started_again_after_the_cooldown(
    stage: Stage,
) -> None:
    async with stage(before=gone(ROLLOUT)) as scene:
        await started(scene, ROLLOUT)
        crashes(scene, ROLLOUT)
        await scene.clock.advance(6)
        assert outcomes(scene) == [("not_healed", "it ended soon after its start")]
        await scene.clock.advance(105)
        assert scene.action.restarts == [1]
        await scene.clock.advance(10)
        assert scene.action.restarts == [1, 2]


async def test_a_process_that_is_known_to_have_failed_need_not_be_seen(stage: Stage) -> None:
    async with stage(before=gone(ROLLOUT)) as scene:
        scene.action.heal = {"processes": 0}
        vars(scene.action)["start_failure"] = lambda: "it exited with status 3"
        await started(scene, ROLLOUT)
        await scene.clock.advance(6)
        assert outcomes(scene) == [("not_healed", "it exited with status 3")]


async def test_a_start_that_failed_is_not_healed_because_its_predecessor_had_finished(
    stage: Stage,
) -> None:
    async with stage(before=gone(ROLLOUT)) as scene:
        scene.action.heal = {"processes": 0, "finished": True}
        vars(scene.action)["start_failure"] = lambda: "it exited with status 127"
        await started(scene, ROLLOUT)
        await scene.clock.advance(8)
        assert outcomes(scene) == [("not_healed", "it exited with status 127")]


async def test_a_worker_that_has_not_appeared_yet_is_waited_for(stage: Stage) -> None:
    async with stage(before=gone(ROLLOUT)) as scene:
        scene.action.heal = {"processes": 0}
        await started(scene, ROLLOUT)
        await scene.clock.advance(50)
        assert outcomes(scene) == []
        now = scene.clock.now()
        scene.observer.workers[ROLLOUT] = make_worker(started_at=now, memory_bytes=GIB)
        await scene.clock.advance(8)
        assert outcomes(scene) == [("healed", "")]


async def test_a_worker_that_finishes_at_once_is_no_failed_start(stage: Stage) -> None:
    async with stage(before=gone(ROLLOUT)) as scene:
        await started(scene, ROLLOUT)
        scene.observer.workers[ROLLOUT] = replace(GONE, finished=True)
        await scene.clock.advance(8)
        assert outcomes(scene) == [("healed", "")]


async def test_while_a_trainer_awaits_its_first_step_another_worker_is_restarted(
    stage: Stage,
) -> None:
    async with stage(before=gone(TRAINER)) as scene:
        await started(scene, TRAINER)
        await scene.clock.advance(35)
        scene.hear(worker="rollout-0", fingerprint="1" * 16)
        await scene.clock.advance(4)
        assert scene.action.restarts == [2]
        assert outcomes(scene) == []


def test_the_interruption_of_an_outcome_is_that_in_which_its_action_began() -> None:
    def facts(start: float, end: float | None, started: float = 0.0) -> list[float]:
        run = RunState(interruption_start=start, interruption_end=end)
        return [*interruption_facts(run, NOW, started).values()]

    assert facts(NOW - 9, NOW + 5) == [NOW - 9, NOW + 5]
    assert facts(NOW - 9, None) == [NOW - 9]
    assert facts(NOW - 9000, NOW + 5, NOW - 7) == [NOW - 7, NOW + 5]
    assert facts(NOW - 9, NOW - 5) == facts(NOW + 1, None) == []
