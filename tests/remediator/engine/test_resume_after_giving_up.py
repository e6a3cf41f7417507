"""`resume` reopens what was given up, with all attempts and rungs available."""

from __future__ import annotations

from typing import Any

from tests.remediator.samples import GIB, ROLLOUT, make_alert
from tests.remediator.stage import Scene, Stage

from trainwarden_remediator.holds import service
from trainwarden_remediator.model import Decision, Verdict


def still_leaks(scene: Scene) -> None:
    scene.action.heal = {"resident_bytes": 9 * GIB}


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
        scene.action.heal = {"resident_bytes": GIB}
        done = resume(scene)
        text = "resumed: 0 holds lifted; 1 incident reopened (#1 demo/rollout-0)"
        assert service.describe_resume(done) == text
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


async def test_what_was_given_up_in_several_runs_is_resumed_by_the_name_of_each(
    stage: Stage,
) -> None:
    async with stage(before=still_leaks, attempts=2) as scene:
        await gives_up(scene)
        scene.journal.record_alerts([make_alert(fingerprint="f" * 16, run="other")])
        (incident,) = scene.journal.open_incidents()
        gave_up = Decision(Verdict.REFUSE, "attempts_exhausted")
        scene.journal.record_decisions([(incident, gave_up)])
        done = resume(scene)
        assert service.describe_resume(done) == (
            "resumed: 0 holds lifted; still given up: #1 demo/rollout-0, #2 other/rollout-0. "
            "Resume each run that is mended: --run RUN"
        )
        assert scene.journal.open_incidents() == ()
        assert list(resume(scene, run="demo").reopened) == [1]
        assert [one.id for one in scene.journal.open_incidents()] == [1]
