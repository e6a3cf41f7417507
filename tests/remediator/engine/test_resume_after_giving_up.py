"""`resume` reopens what was given up, with all attempts and rungs available."""

from __future__ import annotations

from typing import Any

import pytest
from tests.remediator.samples import GIB, NOW, ROLLOUT, make_alert
from tests.remediator.stage import Scene, Stage

from trainwarden_remediator.holds import service
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.model import Decision, Verdict


def still_leaks(scene: Scene) -> None:
    scene.action.heal = {"memory_bytes": 9 * GIB}


async def gives_up(scene: Scene) -> None:
    scene.hear()
    await scene.pass_time(600)
    assert scene.journaled()[-1] == "attempts_exhausted"
    assert scene.journal.given_up(scene.clock.now() - 60) == (ROLLOUT,)


def resume(scene: Scene, **scope: Any) -> service.ResumeResult:
    return service.resume(scene.setup, scene.clock.now(), **scope)


async def test_what_was_given_up_is_tried_again_after_a_resume(stage: Stage) -> None:
    async with stage(before=still_leaks, attempts=2) as scene:
        await gives_up(scene)
        scene.action.heal = {"memory_bytes": GIB}
        done = resume(scene)
        assert service.describe_resume(done) == (
            "resumed: 0 holds lifted; given up before, and tried again now: #1 demo/rollout-0 "
            "(`trainwarden hold --run demo` stops that)"
        )
        await scene.pass_time(30)
        assert scene.action.restarts == [1, 2, 3]
        assert scene.done()[-1] == "healed"
        assert scene.journal.given_up(scene.clock.now() - 60) == ()


async def test_it_has_all_its_attempts_again_and_no_more(stage: Stage) -> None:
    async with stage(before=still_leaks, attempts=2) as scene:
        await gives_up(scene)
        resume(scene, run="demo", worker="rollout-0")
        await scene.pass_time(600)
        assert scene.action.restarts == [1, 2, 3, 4]
        assert scene.journaled()[-1] == "attempts_exhausted"


async def test_a_resume_of_another_worker_changes_nothing(stage: Stage) -> None:
    async with stage(before=still_leaks, attempts=2) as scene:
        await gives_up(scene)
        assert resume(scene, run="demo", worker="trainer").reopened == {}
        await scene.pass_time(60)
        assert scene.action.restarts == [1, 2]


def given_up(scene: Scene, **labels: Any) -> None:
    """Another incident that is given up."""
    scene.journal.record_alerts([make_alert(**{"starts_at": scene.clock.now(), **labels})])
    (incident,) = scene.journal.open_incidents()
    gave_up = Decision(Verdict.REFUSE, "attempts_exhausted")
    scene.journal.record_decisions([(incident, gave_up)])


async def test_a_resume_that_leaves_an_incident_given_up_does_not_resume_it(stage: Stage) -> None:
    async with stage(before=still_leaks, attempts=2) as scene:
        await gives_up(scene)
        given_up(scene, fingerprint="f" * 16, run="other")
        service.hold(scene.setup, Hold(run="demo"), scene.clock.now())
        done = resume(scene)
        assert (len(done.lifted), list(done.left)) == (1, [1, 2])
        scene.journal.record_alerts([make_alert(starts_at=NOW - 20, firing=False)])
        await scene.clock.advance(10)
        assert scene.journal.given_up_before() == (ROLLOUT,)
        scene.hear(starts_at=scene.clock.now())
        await scene.clock.advance(30)
        assert scene.journal.open_incidents() == ()
        assert scene.journaled().count("attempts_exhausted") == 2  # both from before


async def test_an_old_run_whose_end_never_arrived_is_none_of_several(stage: Stage) -> None:
    async with stage(before=still_leaks, attempts=2) as scene:
        given_up(scene, fingerprint="f" * 16, run="other")
        await gives_up(scene)
        stale = scene.setup.config.alert_stale_after + 1
        await scene.clock.advance(stale)
        scene.journal.record_alerts([make_alert(starts_at=NOW - 20)])
        assert list(resume(scene).reopened) == [2]


@pytest.mark.parametrize(
    ("runs", "reopened", "left"), [(["demo"], [1, 2], []), (["demo", "other"], [1], [2, 3])]
)
async def test_the_host_is_no_run_and_is_resumed_without_a_name(
    stage: Stage, runs: list[str], reopened: list[int], left: list[int]
) -> None:
    async with stage(before=still_leaks, attempts=2) as scene:
        for number, run in enumerate(["", *runs]):
            worker = "trainer" if run else ""
            given_up(scene, fingerprint=f"{number:016x}", run=run, worker=worker)
        done = resume(scene)
        assert (list(done.reopened), list(done.left)) == (reopened, left)


async def test_what_was_given_up_in_several_runs_is_resumed_by_the_name_of_each(
    stage: Stage,
) -> None:
    async with stage(before=still_leaks, attempts=2) as scene:
        await gives_up(scene)
        given_up(scene, fingerprint="f" * 16, run="other")
        done = resume(scene)
        assert service.describe_resume(done) == (
            "resumed: 0 holds lifted; still given up: #1 demo/rollout-0, #2 other/rollout-0; "
            "once it is mended, `trainwarden resume --run demo` or "
            "`trainwarden resume --run other` tries it again"
        )
        assert scene.journal.open_incidents() == ()
        assert list(resume(scene, run="demo").reopened) == [1]
        assert [one.id for one in scene.journal.open_incidents()] == [1]
